// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package userdata

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

const plain = `apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    name: demo
    apiServerEndpoint: https://10.0.0.1
    certificateAuthority: Y2E=
    cidr: 10.100.0.0/16
  kubelet:
    config:
      maxPods: 58
      kubeReserved: {cpu: 100m}
      registerWithTaints:
      - {key: team, value: web, effect: NoSchedule}
    flags:
    - --node-labels="a=1,example.com/b=2"
    - --register-with-taints=karpenter.sh/unregistered:NoExecute
`

func archive(parts ...string) string {
	var b strings.Builder
	b.WriteString("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n")
	for _, p := range parts {
		b.WriteString("--//\n" + p + "\n")
	}
	b.WriteString("--//--\n")
	return b.String()
}

func part(document string) string { return "Content-Type: application/node.eks.aws\n\n" + document }

const script = "Content-Type: text/x-shellscript; charset=\"us-ascii\"\n\n#!/bin/sh\necho hello"

const pulls = "Content-Type: text/x-shellscript\n\n" + `#!/bin/bash
systemd-run --no-block --unit=warm --property=After=nodeadm-run.service \
  /bin/bash -c 'for i; do
  nerdctl --namespace k8s.io pull --quiet "$i"
done' warm 'nginx:1' docker.io/library/redis@sha256:0a || true
`

func wantPlain(change func(*Config)) *Config {
	c := &Config{
		ClusterName: "demo", Endpoint: "https://10.0.0.1", CA: []byte("ca"), CIDR: "10.100.0.0/16", MaxPods: 58,
		Labels:       map[string]string{"a": "1", "example.com/b": "2"},
		KubeReserved: map[string]string{"cpu": "100m"},
		Taints: []corev1.Taint{
			{Key: "team", Value: "web", Effect: corev1.TaintEffectNoSchedule},
			{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute},
		},
	}
	if change != nil {
		change(c)
	}
	return c
}

func TestParseNodeConfig(t *testing.T) {
	tests := []struct {
		name     string
		userData string
		want     *Config
	}{
		{"plain", plain, wantPlain(nil)},
		{"archive with a script", archive(script, part(plain)), wantPlain(nil)},
		{"images pulled in the background", archive(part(plain), pulls), wantPlain(func(c *Config) { c.Images = []string{"nginx:1", "docker.io/library/redis@sha256:0a"} })},
		{"images a script waits for", archive(part(plain), strings.Replace(pulls, " --no-block", "", 1)), wantPlain(nil)},
		{"headers in another order", strings.Replace(archive(part(plain)), "MIME-Version: 1.0\n", "", 1), wantPlain(nil)},
		{"line ends of DOS", strings.ReplaceAll(archive(part(plain)), "\n", "\r\n"), wantPlain(nil)},
		{"later parts win, flags add up", archive(part(plain), part(`apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  instance: {localStorage: {strategy: RAID0}}
  kubelet:
    config:
      maxPods: 20
      kubeReserved: {memory: 1Gi}
    flags: ["--node-labels=c=3"]`)), wantPlain(func(c *Config) {
			c.MaxPods, c.RAID0 = 20, true
			c.Labels["c"] = "3"
			c.KubeReserved["memory"] = "1Gi"
		})},
		{"flags win over the file", plain + "    - --max-pods=11\n", wantPlain(func(c *Config) { c.MaxPods = 11 })},
		{"a label kubelets may set", strings.Replace(plain, "a=1", "a=1,node.kubernetes.io/x=y,topology.kubernetes.io/zone=z", 1), wantPlain(func(c *Config) {
			c.Labels["node.kubernetes.io/x"], c.Labels["topology.kubernetes.io/zone"] = "y", "z"
		})},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseNodeConfig([]byte(test.userData))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseNodeConfigErrors(t *testing.T) {
	without := func(line string) string {
		before, rest, ok := strings.Cut(plain, line)
		if !ok {
			t.Fatalf("no %q in the document", line)
		}
		_, after, _ := strings.Cut(rest, "\n")
		return before + "x: y\n" + after
	}
	tests := []struct {
		name     string
		userData string
		want     string
	}{
		{"empty", " \n", "empty"},
		{"script only", archive(script), "no part of type application/node.eks.aws"},
		{"bare script", "#!/bin/sh\necho hi", "parsing NodeConfig"},
		{"other kind", strings.Replace(plain, "kind: NodeConfig", "kind: Pod", 1), `no kind "Pod"`},
		{"no YAML", archive(part("a: [")), "parsing NodeConfig"},
		{"no name", without("name: demo"), "name is missing"},
		{"no endpoint", without("apiServerEndpoint"), "apiServerEndpoint is missing"},
		{"no CA", without("certificateAuthority"), "certificateAuthority is missing"},
		{"CA not base64", strings.Replace(plain, "Y2E=", "not-base64", 1), "certificateAuthority"},
		{"no CIDR", without("cidr: 10"), "cidr is missing"},
		{"forbidden label", strings.Replace(plain, "a=1", "node-restriction.kubernetes.io/a=1", 1), `'kubernetes.io' or 'k8s.io' label "node-restriction.kubernetes.io/a"`},
		{"forbidden label of k8s.io", strings.Replace(plain, "a=1", "karpenter.k8s.io/a=1", 1), "karpenter.k8s.io/a"},
		{"bad label value", strings.Replace(plain, "a=1", "a=b c", 1), `label "a"`},
		{"label without value", strings.Replace(plain, "a=1", "a", 1), "has no value"},
		{"unknown effect", strings.Replace(plain, "NoSchedule", "Never", 1), `unknown effect "Never"`},
		{"bad max-pods", plain + "    - --max-pods=many\n", "max-pods"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseNodeConfig([]byte(test.userData))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

const settings = `# settings
[settings.kubernetes]
api-server = 'https://10.0.0.1'
cluster-certificate = "Y2E="
cluster-name = "demo"
cluster-dns-ip = ['10.100.0.10', "10.100.0.11"]
max-pods = 1_10 # as many

[settings.kubernetes.node-labels]
'example.com/b' = "2"
a = '1'

[settings.kubernetes.node-taints]
team = ["web:NoSchedule", "ops:NoExecute"]
"karpenter.sh/unregistered" = [
  ":NoExecute",
]
[settings.kubernetes.static-pods.warm]
enabled = true
manifest = "a2luZDogUG9kCnNwZWM6IHtjb250YWluZXJzOiBbe2ltYWdlOiBuZ2lueDoxfV19Cg=="
[settings.kubernetes.static-pods.off]
enabled = false
manifest = "a2luZDogUG9kCnNwZWM6IHtjb250YWluZXJzOiBbe2ltYWdlOiBuZ2lueDoxfV19Cg=="
[settings.kubernetes.eviction-hard]
"memory.available" = "12%"
[settings.host-containers.admin]
enabled = false
`

func TestParseBottlerocket(t *testing.T) {
	got, err := ParseBottlerocket([]byte(settings))
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		ClusterName: "demo", Endpoint: "https://10.0.0.1", CA: []byte("ca"), MaxPods: 110,
		Labels:       map[string]string{"a": "1", "example.com/b": "2"},
		EvictionHard: map[string]string{"memory.available": "12%"},
		KubeReserved: map[string]string{}, SystemReserved: map[string]string{}, Images: []string{"nginx:1"},
		Taints: []corev1.Taint{
			{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute},
			{Key: "team", Value: "web", Effect: corev1.TaintEffectNoSchedule},
			{Key: "team", Value: "ops", Effect: corev1.TaintEffectNoExecute},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseBottlerocketErrors(t *testing.T) {
	tests := []struct {
		name, userData, want string
	}{
		{"empty", "", "name is missing"},
		{"a NodeConfig", plain, "parsing settings: line 1"},
		{"no endpoint", strings.Replace(settings, "api-server", "apiserver", 1), "apiServerEndpoint is missing"},
		{"string not finished", "[settings]\na = \"b", "line 2"},
		{"set twice", "a = 1\na = 2", `"a" is set twice`},
		{"key as table", "a = 1\n[a.b]", `"a" is no table`},
		{"float", "a = 1.5", `"1.5" is not supported`},
		{"array not finished", "a = [1, 2", "not finished"},
		{"two values", "a = 1 2", "unexpected"},
		{"key alone", "a", "not followed"},
		{"long string", "a = \"\"\"x\"\"\"", "several lines"},
		{"taint without effect", strings.Replace(settings, ":NoExecute", "", 1), "no effect"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseBottlerocket([]byte(test.userData))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(plain)
	f.Add(settings)
	f.Add(archive(script, part(plain)))
	f.Fuzz(func(t *testing.T, text string) {
		// User data is anything: it may be refused but must not panic.
		if c, err := ParseNodeConfig([]byte(text)); err == nil && c.ClusterName == "" {
			t.Error("accepted without a cluster")
		}
		if c, err := ParseBottlerocket([]byte(text)); err == nil && c.Endpoint == "" {
			t.Error("accepted without an endpoint")
		}
	})
}
