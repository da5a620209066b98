#!/usr/bin/env bash
# Copyright The Slipway Authors.
# SPDX-License-Identifier: Apache-2.0

# Renders the chart into manifests/install, for kubectl and kustomize, and copies the upstream custom resources into the chart.
# The chart is the source; what is rendered is committed, and `make verify` fails when the two differ.
set -euo pipefail
cd "$(dirname "$0")/.."

chart=manifests/helm/slipway
crds=$("${GO:-go}" list -m -f '{{.Dir}}' github.com/aws/karpenter-provider-aws)/pkg/apis/crds
for kind in karpenter.sh_nodepools karpenter.sh_nodeclaims karpenter.sh_nodeoverlays karpenter.k8s.aws_ec2nodeclasses; do
  install -m 0644 "$crds/$kind.yaml" "$chart/crds/$kind.yaml"
done

for installation in joint split; do
  bin/tools/helm lint --quiet --strict "$chart" --set clusterName=example --set installation=$installation
  {
    echo "# Rendered from $chart by \`make manifests\`: change it there."
    bin/tools/helm template slipway "$chart" --namespace slipway-system --set clusterName=example --set installation=$installation
  } | sed -e '/^# Source: /d' -e 's/[[:space:]]*$//' >manifests/install/$installation/slipway.yaml
done
