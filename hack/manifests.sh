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

install -m 0644 manifests/crds/slipway.sh_workloadpolicies.yaml "$chart/crds/slipway.sh_workloadpolicies.yaml"

# render FOLDER VALUES…: one installation.
render() {
  local folder=$1
  shift
  bin/tools/helm lint --quiet --strict "$chart" --set clusterName=example "$@"
  {
    echo "# Rendered from $chart by \`make manifests\`: change it there."
    bin/tools/helm template slipway "$chart" --namespace slipway-system --set clusterName=example "$@"
  } | sed -e '/^# Source: /d' -e 's/[[:space:]]*$//' >manifests/install/"$folder"/slipway.yaml
}

# What is there only with a value is looked at, too.
bin/tools/helm lint --quiet --strict "$chart" --set clusterName=example --set controller.leaderElectionNamespace=kube-system

render joint --set installation=joint
render split --set installation=split
render admission --set installation=split --set admission.enabled=true
