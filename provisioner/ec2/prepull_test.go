// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/ec2emu/userdata"
)

func TestPrepullsByFamilyAndAnnotation(t *testing.T) {
	for _, tt := range []struct {
		family, annotation string
		want               bool
	}{
		{v1.AMIFamilyAL2023, "", true},
		{v1.AMIFamilyAL2023, "true", true},
		{v1.AMIFamilyAL2023, "false", false},
		{v1.AMIFamilyBottlerocket, "", false},
		{v1.AMIFamilyBottlerocket, "true", true},
		{v1.AMIFamilyAL2, "true", false},
		{v1.AMIFamilyWindows2022, "true", false},
		{v1.AMIFamilyCustom, "true", false},
		{"Ubuntu", "true", false},
	} {
		class := builder.EC2NodeClass("c").Obj()
		class.Spec.AMIFamily = &tt.family
		class.Annotations = map[string]string{AnnotationImagePrepull: tt.annotation}
		if got := Prepulls(class); got != tt.want {
			t.Errorf("%s with %q: %v", tt.family, tt.annotation, got)
		}
	}
}

func TestImageName(t *testing.T) {
	for _, good := range []string{"nginx", "nginx:1.27", "docker.io/library/nginx", "localhost:5000/a__b/c-d:v1.0_x", "k8s.gcr.io/pause@sha256:0a"} {
		if !ImageName(good) {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{"", "-v", "a b", "a'b", "$(reboot)", "a;b", "a\nb", "a`b`", "ä", "a,b", strings.Repeat("a", 769)} {
		if ImageName(bad) {
			t.Errorf("%q is let through", bad)
		}
	}
}

// What machines read is what was meant.
func TestImagesArriveOnTheMachine(t *testing.T) {
	images := []string{"111122223333.dkr.ecr.eu-west-1.amazonaws.com/web:1", "nginx", "redis@sha256:0a"}
	for family, parse := range map[string]func([]byte) (*userdata.Config, error){
		v1.AMIFamilyAL2023: userdata.ParseNodeConfig, v1.AMIFamilyBottlerocket: userdata.ParseBottlerocket,
	} {
		text, err := UserData(family, bootstrap(func(b *Bootstrap) { b.Images = images }))
		if err != nil {
			t.Fatal(err)
		}
		read, err := parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(images, read.Images); d != "" {
			t.Errorf("%s: images (-want +got):\n%s", family, d)
		}
	}
}

// Images are no reason to refuse a class: they are left out where its user data leaves no room.
func TestImagesYieldToUserData(t *testing.T) {
	full := bootstrap(func(b *Bootstrap) { b.Custom = "#!/bin/bash\n#" + strings.Repeat("x", 15000) + "\n" })
	without, err := UserData(v1.AMIFamilyAL2023, full)
	if err != nil {
		t.Fatal(err)
	}
	full.Images = []string{"registry.example.com/" + strings.Repeat("y", 700)}
	with, err := UserData(v1.AMIFamilyAL2023, full)
	if err != nil {
		t.Fatal(err)
	}
	if with != without {
		t.Errorf("user data of %d bytes has images beyond those of %d", len(with), len(without))
	}
	full.Custom += strings.Repeat("#\n", 1000)
	if _, err := UserData(v1.AMIFamilyAL2023, full); err == nil {
		t.Error("user data over the limit is accepted")
	}
}

// The script is run with stand-ins for the programs of the machine, which write down how they are called.
func TestPullScript(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash to run the script with")
	}
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	program := func(name, body string) {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!"+bash+"\n"+body), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// systemd-run runs the command in place of a unit: what comes after the options, with its own variables in place of
	// ${NAME}, of which none is set here, and one dollar sign for two.
	program("systemd-run", `echo "queued $1" >>"$LOG"; while [[ $1 == --* ]]; do shift; done
words=(); for word; do words+=("$(printf %s "$word" | sed -E 's/[$][{][^}]*[}]//g; s/[$][$]/$/g')"); done
"${words[@]}"; exit 1`)
	program("aws", `echo "aws $*" >>"$LOG"; echo token`)
	program("nerdctl", `[[ $1 == login ]] && read -r secret; echo "nerdctl $* $secret" >>"$LOG"; [[ $* != *broken* ]]`)

	private := "111122223333.dkr.ecr.eu-west-1.amazonaws.com"
	images := []string{private + "/a:1", "broken", private + "/b:1", "222233334444.dkr.ecr.us-east-1.evil.com/c", "nginx"}
	cmd := exec.CommandContext(t.Context(), bash, "-c", pullScript(images))
	cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "LOG=" + log, "TMPDIR=" + t.TempDir()}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the script fails though only what it queues did: %v\n%s", err, out)
	}
	got, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	want := `queued --no-block
aws ecr get-login-password --region eu-west-1
nerdctl login --username AWS --password-stdin ` + private + ` token
nerdctl --namespace k8s.io pull --quiet ` + private + `/a:1 
nerdctl --namespace k8s.io pull --quiet broken 
nerdctl --namespace k8s.io pull --quiet ` + private + `/b:1 
nerdctl --namespace k8s.io pull --quiet 222233334444.dkr.ecr.us-east-1.evil.com/c 
nerdctl --namespace k8s.io pull --quiet nginx 
`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
	if left, _ := filepath.Glob(filepath.Join(cmd.Env[2][len("TMPDIR="):], "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
