// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/test/house"
)

// foreign are the flags of other programs that pages name.
func foreign() []string {
	return []string{
		// helm
		"create-namespace", "reuse-values", "set", "set-json",
		// kubectl
		"all", "delete-emptydir-data", "field-selector", "for", "ignore-daemonsets", "timeout", "type", "wait",
		// aws
		"nodegroup-name", "role-arn", "scaling-config", "service-account",
		// kube-scheduler, whose flags slipway-scheduler has
		"feature-gates",
	}
}

func TestDocs(t *testing.T) {
	docs, err := house.ReadDocs(os.DirFS(moduleRoot(t)))
	if err != nil {
		t.Fatal(err)
	}
	if len(docs.Pages) < 20 || len(docs.Flags) < 30 || len(docs.Events) < 20 || len(docs.Samples) < 5 || docs.Metrics == "" {
		t.Fatalf("found %d pages, %d flags, %d events, %d samples and %d bytes of metrics: the walk is broken",
			len(docs.Pages), len(docs.Flags), len(docs.Events), len(docs.Samples), len(docs.Metrics))
	}
	for _, v := range house.CheckDocs(docs, foreign()) {
		t.Error(v)
	}
}

func TestCheckDocs(t *testing.T) {
	tree := fstest.MapFS{
		"docs/page.md": {Data: []byte("# A page\n\n[good](other.md#its-heading-no-2) [gone](gone.md) [no heading](other.md#none) [web](https://example.com/x)\n" +
			"`--known` and `--unknown`, helm's --set\n" +
			"`slipway.sh/known` and `slipway.sh/unknown-name`\n" +
			"`slipway_known_total{result}` and `slipway_unknown_total`\n" +
			"```yaml\nkind: Known\n```\n```yaml\nkind: Kn\n```\n")},
		"docs/other.md":             {Data: []byte("## Its heading, no. `2`\n```\n# none\n```\n")},
		"docs/events.md":            {Data: []byte("| reason |\n|---|\n| `Known` | x |\n| `Unknown` | x |\n")},
		"docs/reference/metrics.md": {Data: []byte("| `slipway_known_total` |\n")},
		"manifests/samples/a.yaml":  {Data: []byte("apiVersion: v1\nkind: Known\n")},
		"cmd/a/main.go":             {Data: []byte("package main\n\nfunc f() { fs.StringVar(&o, \"known\", \"\", \"\"); e.Eventf(a, b, c, \"Known\", d); e.Eventf(a, b, c, \"Unlisted\", d) }\n\nconst x = \"slipway.sh/known\"\n")},
	}
	docs, err := house.ReadDocs(tree)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range house.CheckDocs(docs, []string{"set", "unused"}) {
		got = append(got, v.String())
	}
	want := []string{
		`docs/page.md:3: links to "gone.md", which is not there`,
		`docs/page.md:3: links to "other.md#none", and docs/other.md has no such heading`,
		`docs/page.md:4: no command in cmd has a flag --unknown`,
		`docs/page.md:5: no source has the name slipway.sh/unknown-name`,
		`docs/page.md:6: docs/reference/metrics.md has no metric slipway_unknown_total`,
		`docs/page.md:10: the example is not part of a file in manifests/samples`,
		`test/house:1: flag --unused of another program is in the table, and on no page`,
		`docs/events.md:4: no source has an event Unknown`,
		`docs/events.md:1: the event Unlisted of cmd/a/main.go:3 is missing`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}
