// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster starts a real Kubernetes control plane on loopback in a few seconds and plays its nodes.
//
// It owns the processes etcd, kube-apiserver and kube-controller-manager (and kwok, on request), their
// certificates, ports and temporary folder, the binaries built for them from the modules pinned in go.mod, and
// an in-process fake kubelet. In a test:
//
//	c := cluster.Start(t, cluster.Options{})
//	client := kubernetes.NewForConfigOrDie(c.Config())
//	kubelet := cluster.StartKubelet(t, c, cluster.KubeletOptions{})
//
// There is no kube-scheduler: pods stay pending until somebody binds them.
//
// # Binaries
//
// Binaries live in <module root>/bin/k8s/<version> or, if set, in the folder $SLIPWAY_K8S_BIN. What is missing is
// built by "go build" under a file lock, with the Kubernetes version stamped in: a kube-apiserver without it calls
// itself v0.0.0-master and clients that look at the version break. The first build compiles Kubernetes and takes
// 10 to 20 minutes on two cores, which is longer than the default limit of "go test"; run
// "go run ./test/cluster/build" first on a fresh machine.
//
// # Life of the processes
//
// Every process is started from one OS thread that is locked for the life of the cluster and carries SIGKILL as its
// parent-death signal. On Linux the kernel therefore ends all of them when the caller ends, also after kill -9, a
// panic or os.Exit; no supervisor is needed. The folder is locked by its owner, and the next start on the machine
// removes every folder whose owner is gone (and, where there is no parent-death signal, ends what is left running
// from it).
//
// # Who the kubelet is
//
// The fake kubelet reads with the credentials it was given and writes nodes, leases and pods as the user
// system:node:<name> in group system:nodes, by impersonation on one connection. So the Node authorizer and the
// NodeRestriction admission plugin judge each write as they would judge a real kubelet's. Timed agent taints are
// written with the given credentials, because an agent is not a kubelet.
//
// # Never
//
// It never contacts anything but loopback, never runs containers, never schedules, and never imports the product. Of
// test/ec2emu it knows only the Machine that boots there and the Kubelet it joins. Import level: 6 (test).
package cluster
