#!/usr/bin/env bash
# Copyright The Slipway Authors.
# SPDX-License-Identifier: Apache-2.0

# Moves the tree to another release of Kubernetes (docs/releasing.md): every place that names it.
#
#   hack/kubernetes-version.sh v1.38.0 [--dry-run]
#
# --dry-run shows the difference and changes nothing.

set -euo pipefail
cd "$(dirname "$0")/.."

usage="usage: make kubernetes-version VERSION=v1.MINOR.PATCH [DRY_RUN=1]"
version=${1:-}
if [[ ! $version =~ ^v1\.([0-9]+)\.([0-9]+)$ ]]; then
	echo "VERSION is \"$version\", it has to be a release such as v1.38.0; $usage" >&2
	exit 2
fi
minor=${BASH_REMATCH[1]} patch=${BASH_REMATCH[2]}
if [[ ${2:-} != "" && ${2:-} != --dry-run ]]; then
	echo "unknown argument \"$2\"; $usage" >&2
	exit 2
fi

# The places. edit FILE SED-EXPRESSION…; each expression has to match something.
root=.
edit() {
	local file=$1 pattern
	shift
	for pattern; do
		if [[ $(sed -nE "${pattern}p" "$root/$file" | wc -l) = 0 ]]; then
			echo "$file: nothing matches $pattern; mend hack/kubernetes-version.sh" >&2
			exit 1
		fi
		sed -i -E "$pattern" "$root/$file"
	done
}
files=(go.mod manifests/helm/slipway/Chart.yaml cmd/slipway/migrate/rules.go README.md docs/limits.md docs/install.md CHANGELOG.md
	test/cluster/cluster_test.go test/cluster/binaries_test.go)

change() {
	local old
	old=$(sed -nE 's#^.*k8s\.io/api => k8s\.io/api v0\.([0-9]+\.[0-9]+)$#\1#p' go.mod)
	edit go.mod "s#^(.*k8s\.io/[a-z-]+) v0\.${old//./\\.}( // indirect)?\$#\1 v0.$minor.$patch\2#" \
		"s#^(.*k8s\.io/kubernetes) v1\.[0-9]+\.[0-9]+#\1 v1.$minor.$patch#"
	edit manifests/helm/slipway/Chart.yaml "s/^appVersion: .*/appVersion: \"1.$minor\"/" "s/^kubeVersion: .*/kubeVersion: \">= 1.$minor.0-0\"/"
	edit cmd/slipway/migrate/rules.go "s/^const minor = .*/const minor = $minor/"
	edit README.md "s/this tree builds 1\.[0-9]+/this tree builds 1.$minor/"
	edit docs/limits.md "s/^(\| Kubernetes \| )1\.[0-9]+:/\11.$minor:/"
	edit docs/install.md "s/(this tree builds for \()1\.[0-9]+\)/\11.$minor)/"
	edit CHANGELOG.md "s/^## Unreleased \(Kubernetes 1\.[0-9]+\)/## Unreleased (Kubernetes 1.$minor)/"
	edit test/cluster/cluster_test.go "s/v1\.[0-9]+\.[0-9]+/v1.$minor.$patch/g" "s/got.Minor != \"[0-9]+\"/got.Minor != \"$minor\"/"
	edit test/cluster/binaries_test.go "s/kubeModule: \"v1\.[0-9]+\.\"/kubeModule: \"v1.$minor.\"/"
}

if [[ ${2:-} = --dry-run ]]; then
	root=$(mktemp -d)
	trap 'rm -r "$root"' EXIT
	for f in "${files[@]}"; do
		mkdir -p "$root/$(dirname "$f")"
		cp "$f" "$root/$f"
	done
	change
	for f in "${files[@]}"; do
		diff -u --label "a/$f" --label "b/$f" "$f" "$root/$f" || true
	done
	exit 0
fi

change
go=${GO:-go}
"$go" mod tidy
(cd test/compare && "$go" mod tidy)
make --no-print-directory manifests
echo "The tree is at Kubernetes $version. Now: make generate verify test fidelity"
