// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package userdata

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

const kubeletArguments = `--node-labels="team=web,karpenter.sh/nodepool=default" --register-with-taints="karpenter.sh/unregistered:NoExecute" --max-pods=29 --pods-per-core=4 --kube-reserved="cpu=80m,memory=300Mi" --system-reserved="cpu=100m" --eviction-hard="memory.available<5%"`

func wanted() *Config {
	return &Config{
		ClusterName: "demo", Endpoint: "https://127.0.0.1:6443", CA: []byte("ca"),
		Labels: map[string]string{"team": "web", "karpenter.sh/nodepool": "default"},
		Taints: []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: "NoExecute"}}, MaxPods: 29, PodsPerCore: 4,
		KubeReserved: map[string]string{"cpu": "80m", "memory": "300Mi"}, SystemReserved: map[string]string{"cpu": "100m"},
		EvictionHard: map[string]string{"memory.available": "5%"},
	}
}

func TestParseBootstrap(t *testing.T) {
	script := `#!/bin/bash -xe
exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1
/etc/eks/bootstrap.sh 'demo' --apiserver-endpoint 'https://127.0.0.1:6443' --b64-cluster-ca 'Y2E=' \
--dns-cluster-ip '10.100.0.10' \
--use-max-pods false \
--kubelet-extra-args '` + kubeletArguments + `' \
--local-disks raid0`
	archive := "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: text/x-shellscript; charset=\"us-ascii\"\n\n" +
		"#!/bin/bash\necho user\n--//\nContent-Type: text/x-shellscript; charset=\"us-ascii\"\n\n" + script + "\n--//--\n"
	want := wanted()
	want.RAID0 = true
	for name, userData := range map[string]string{"script": script, "archive": archive} {
		got, err := ParseBootstrap([]byte(userData))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestParseWindows(t *testing.T) {
	script := "<powershell>\r\nWrite-Host 'user'\r\n" +
		`[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"` + "\r\n" +
		"& $EKSBootstrapScriptFile -EKSClusterName 'demo' -APIServerEndpoint 'https://127.0.0.1:6443' -Base64ClusterCA 'Y2E=' -KubeletExtraArgs '" + kubeletArguments + "' -DNSClusterIP '10.100.0.10'\r\n</powershell>"
	got, err := ParseWindows([]byte(script))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wanted(), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestScriptErrors(t *testing.T) {
	tests := []struct {
		name, userData, want string
		parse                func([]byte) (*Config, error)
	}{
		{"no call", "#!/bin/bash\necho", "nothing calls", ParseBootstrap},
		{"no value", "/etc/eks/bootstrap.sh demo --apiserver-endpoint", "has no value", ParseBootstrap},
		{"unknown option", "/etc/eks/bootstrap.sh demo --nonsense 1", "unknown option --nonsense", ParseBootstrap},
		{"open quote", "/etc/eks/bootstrap.sh 'demo", "is open", ParseBootstrap},
		{"no endpoint", "/etc/eks/bootstrap.sh demo --b64-cluster-ca Y2E=", "apiServerEndpoint is missing", ParseBootstrap},
		{"bad CA", "/etc/eks/bootstrap.sh demo --apiserver-endpoint x --b64-cluster-ca !", "cluster CA", ParseBootstrap},
		{"bad flag", "/etc/eks/bootstrap.sh demo --apiserver-endpoint x --b64-cluster-ca Y2E= --kubelet-extra-args --max-pods=many", "max-pods", ParseBootstrap},
		{"no PowerShell", "Write-Host", "no <powershell>", ParseWindows},
		{"unknown parameter", "<powershell>\n& $EKSBootstrapScriptFile -Nonsense 1\n</powershell>", "unknown option -Nonsense", ParseWindows},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.parse([]byte(test.userData))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}
