// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	kwoknodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	kwoknodelease "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	kwokpodfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
)

const (
	loopback      = "127.0.0.1"
	serviceIP     = "10.0.0.1" // first address of serviceIPRange: the "kubernetes" Service
	serviceRange  = "10.0.0.0/16"
	accountIssuer = "https://kubernetes.default.svc.cluster.local"
)

// authenticationConfig allows anonymous requests for health only, which kube-apiserver's flag cannot say.
const authenticationConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions:
  - path: /livez
  - path: /readyz
  - path: /healthz
`

// ports of a cluster's listeners, all on loopback.
type ports struct {
	etcd, etcdPeer, apiServer, controllers int
}

func url(port int) string { return "https://" + loopback + ":" + strconv.Itoa(port) }

func etcdArgs(dir string, p ports, f pkiFiles, fsync bool) []string {
	args := []string{
		"--name=slipway", "--data-dir=" + filepath.Join(dir, "etcd"),
		"--listen-client-urls=" + url(p.etcd), "--advertise-client-urls=" + url(p.etcd),
		"--listen-peer-urls=" + url(p.etcdPeer), "--initial-advertise-peer-urls=" + url(p.etcdPeer),
		"--initial-cluster=slipway=" + url(p.etcdPeer),
		"--client-cert-auth", "--trusted-ca-file=" + f.ca, "--cert-file=" + f.cert, "--key-file=" + f.key,
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + f.ca, "--peer-cert-file=" + f.cert, "--peer-key-file=" + f.key,
		// A soak run writes more than the default 2 GiB between two compactions.
		"--quota-backend-bytes=" + strconv.Itoa(8<<30), "--log-level=warn",
	}
	if !fsync {
		args = append(args, "--unsafe-no-fsync")
	}
	return args
}

func apiServerArgs(dir string, p ports, f pkiFiles, extra []string) ([]string, error) {
	authentication := filepath.Join(dir, "authentication.yaml")
	if err := os.WriteFile(authentication, []byte(authenticationConfig), 0o600); err != nil {
		return nil, fmt.Errorf("writing authentication configuration: %w", err)
	}
	return append([]string{
		"--etcd-servers=" + url(p.etcd), "--etcd-cafile=" + f.ca, "--etcd-certfile=" + f.cert, "--etcd-keyfile=" + f.key,
		"--bind-address=" + loopback, "--advertise-address=" + loopback, "--secure-port=" + strconv.Itoa(p.apiServer),
		// Endpoints may not name a loopback address, so nothing is published for the "kubernetes" Service.
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=" + serviceRange,
		"--tls-cert-file=" + f.cert, "--tls-private-key-file=" + f.key, "--client-ca-file=" + f.ca,
		// Nobody proxies for users here. But kube-scheduler and others read this authority from the cluster and complain
		// without it; and it must not be the users' own, or every user could pose as a proxy.
		"--requestheader-client-ca-file=" + f.proxyCA, "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--authentication-config=" + authentication, "--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-account-issuer=" + accountIssuer,
		"--service-account-key-file=" + f.accountPub, "--service-account-signing-key-file=" + f.accountKey,
		// Bursts come from one machine over few connections; priority and fairness stay on and divide this.
		"--max-requests-inflight=3000", "--max-mutating-requests-inflight=1500", "--http2-max-streams-per-connection=1000",
		"--event-ttl=15m", "--profiling=false",
	}, extra...), nil
}

func controllerManagerArgs(p ports, f pkiFiles, kubeconfig string, opts Options) []string {
	args := []string{
		"--kubeconfig=" + kubeconfig, "--bind-address=" + loopback, "--secure-port=" + strconv.Itoa(p.controllers),
		"--leader-elect=false", "--use-service-account-credentials=true",
		"--service-account-private-key-file=" + f.accountKey, "--root-ca-file=" + f.ca,
		// Off: what needs a cloud or a network, and what would only watch.
		"--controllers=*,-node-ipam-controller,-endpoints-controller,-endpointslice-mirroring-controller," +
			"-horizontal-pod-autoscaler-controller,-selinux-warning-controller," +
			"-kube-apiserver-serving-clustertrustbundle-publisher-controller",
		"--kube-api-qps=" + strconv.Itoa(opts.ControllerQPS), "--kube-api-burst=" + strconv.Itoa(opts.ControllerQPS+opts.ControllerQPS/2),
		"--profiling=false",
	}
	if grace := opts.NodeMonitorGracePeriod; grace > 0 {
		// The period bounds how late a silent node is noticed after its grace.
		period := min(max(grace/5, 100*time.Millisecond), 5*time.Second)
		args = append(args, "--node-monitor-grace-period="+grace.String(), "--node-monitor-period="+period.String())
	}
	return append(args, opts.ControllerManagerArgs...)
}

// kwokArgs writes kwok's stages, which it has no default for, and returns its flags.
func kwokArgs(dir, kubeconfig string) ([]string, error) {
	stages := filepath.Join(dir, "kwok.yaml")
	content := strings.Join([]string{
		kwoknodefast.DefaultNodeInit, kwoknodelease.DefaultNodeHeartbeatWithLease,
		kwokpodfast.DefaultPodReady, kwokpodfast.DefaultPodComplete, kwokpodfast.DefaultPodDelete,
	}, "\n---\n")
	if err := os.WriteFile(stages, []byte(content), 0o600); err != nil {
		return nil, fmt.Errorf("writing kwok stages: %w", err)
	}
	return []string{
		"--config=" + stages, "--kubeconfig=" + kubeconfig,
		"--manage-all-nodes=false",
		"--manage-nodes-with-annotation-selector=" + KwokAnnotation + "=" + KwokAnnotationValue,
		"--node-lease-duration-seconds=40",
	}, nil
}
