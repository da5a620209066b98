#!/usr/bin/env bash
# Copyright The Slipway Authors.
# SPDX-License-Identifier: Apache-2.0

# Makes the deepcopy functions of api/ and the CRDs in manifests/crds. The generator is pinned in tools/ and built into bin/tools.
set -euo pipefail
cd "$(dirname "$0")/.."

gen=bin/tools/controller-gen
if [ ! -x "$gen" ] || [ tools/go.mod -nt "$gen" ]; then
  mkdir -p bin/tools
  "${GO:-go}" build -C tools -o ../bin/tools/ sigs.k8s.io/controller-tools/cmd/controller-gen
  touch "$gen"
fi
"$gen" object:headerFile=hack/boilerplate.go.txt crd:maxDescLen=400,headerFile=hack/boilerplate.yaml.txt \
  paths=./api/... output:crd:dir=manifests/crds

# The licence comes first in every file of this tree, the build constraint after it.
for f in api/*/zz_generated.deepcopy.go; do
  awk 'NR == 1 {constraint = $0; next} NR == 2 && $0 == "" {next} {print} /SPDX-License-Identifier/ && constraint {print ""; print constraint; constraint = ""}' "$f" >"$f.new"
  mv "$f.new" "$f"
done
