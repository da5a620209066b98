// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// AdminUser is the user of Config and Kubeconfig, a member of system:masters.
const AdminUser = "slipway-test-admin"

// Cluster is a running control plane. Its methods may be called from any goroutine.
type Cluster struct {
	opts       Options
	dir        *workdir
	thread     *thread
	ca         *authority
	ports      ports
	admin      *rest.Config
	kubeconfig string

	mu        sync.Mutex // guards processes and stopping
	processes []*process
	stopping  bool
	apiServer component         // the running kube-apiserver
	expected  map[*process]bool // processes that are ended on purpose
	over      chan struct{}     // closed when a process died or Stop began
	overErr   error             // why, read after over is closed
	stop      func() error
}

// New starts a control plane and returns when it can be used: the API server is ready, with its RBAC rules and
// priority classes, and pods can be created in namespace default. It builds missing binaries first.
//
// ctx bounds the start only; call Stop to end the cluster. If New fails, everything it started is gone.
func New(ctx context.Context, opts Options) (*Cluster, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	bin, err := Build(ctx, opts)
	if err != nil {
		return nil, err
	}
	dir, err := newWorkdir(ctx, opts.TempDir)
	if err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts, dir: dir, thread: newThread(), expected: map[*process]bool{}, over: make(chan struct{})}
	c.stop = sync.OnceValue(c.shutdown)
	if err := c.start(ctx, bin); err != nil {
		return nil, errors.Join(fmt.Errorf("starting control plane: %w", err), c.Stop())
	}
	return c, nil
}

// start brings the components up in the order of their needs.
func (c *Cluster) start(ctx context.Context, bin string) error {
	files, err := c.prepare()
	if err != nil {
		return err
	}
	// The API server waits for etcd by itself; the controllers do not wait for the API server for long.
	if _, err := c.launch(filepath.Join(bin, "etcd"), etcdArgs(c.dir.path, c.ports, files, c.opts.Fsync)); err != nil {
		return err
	}
	args, err := apiServerArgs(c.dir.path, c.ports, files, c.opts.APIServerArgs)
	if err != nil {
		return err
	}
	c.apiServer = component{bin: filepath.Join(bin, "kube-apiserver"), args: args}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	controllers := filepath.Join(c.dir.path, "controller-manager.kubeconfig")
	if err := c.WriteKubeconfig(controllers, "system:kube-controller-manager"); err != nil {
		return err
	}
	if _, err := c.launch(filepath.Join(bin, "kube-controller-manager"), controllerManagerArgs(c.ports, files, controllers, c.opts)); err != nil {
		return err
	}
	if c.opts.Kubelet == Kwok {
		args, err := kwokArgs(c.dir.path, c.kubeconfig)
		if err != nil {
			return err
		}
		if _, err := c.launch(filepath.Join(bin, "kwok"), args); err != nil {
			return err
		}
	}
	return c.AwaitNamespace(ctx, "default")
}

// prepare chooses ports and writes certificates and the administrator's kubeconfig.
func (c *Cluster) prepare() (pkiFiles, error) {
	for _, p := range []*int{&c.ports.etcd, &c.ports.etcdPeer, &c.ports.apiServer, &c.ports.controllers} {
		port, err := c.dir.port()
		if err != nil {
			return pkiFiles{}, err
		}
		*p = port
	}
	var err error
	if c.ca, err = newAuthority(); err != nil {
		return pkiFiles{}, err
	}
	files, err := writePKI(c.dir.path, c.ca)
	if err != nil {
		return pkiFiles{}, err
	}
	if c.admin, err = c.User(AdminUser, "system:masters"); err != nil {
		return pkiFiles{}, err
	}
	c.kubeconfig = filepath.Join(c.dir.path, "admin.kubeconfig")
	return files, c.WriteKubeconfig(c.kubeconfig, AdminUser, "system:masters")
}

// gcPercent lets the control plane's heaps grow further before they are collected: on a machine shared with everything
// else under test, collection is a sixth of the API server's work, and a node of a real control plane has memory to spare.
const gcPercent = "GOGC=300"

// component is a program of the control plane that can be started again.
type component struct {
	bin  string
	args []string
	p    *process
}

// StopAPIServer kills kube-apiserver, as the loss of its machine does. The data stays, and so do the other components,
// which try to reach it. StartAPIServer ends the outage.
func (c *Cluster) StopAPIServer() error {
	c.mu.Lock()
	p := c.apiServer.p
	c.expected[p] = true
	c.mu.Unlock()
	return p.kill()
}

// StartAPIServer starts kube-apiserver on its port and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	p, err := c.launch(c.apiServer.bin, c.apiServer.args)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.apiServer.p = p
	c.mu.Unlock()
	return c.awaitAPIServer(ctx)
}

// launch starts a component and watches it.
func (c *Cluster) launch(bin string, args []string) (*process, error) {
	name := filepath.Base(bin)
	cmd := exec.Command(bin, args...)
	cmd.Dir = c.dir.path
	cmd.Env = append(os.Environ(), gcPercent)
	p, err := startProcess(c.thread, name, filepath.Join(c.dir.path, name+".log"), cmd)
	if err != nil {
		return nil, err
	}
	go func() {
		<-p.done
		c.mu.Lock()
		expected := c.expected[p]
		c.mu.Unlock()
		if !expected {
			c.end(p.died())
		}
	}()
	return p, c.adopt(p)
}

// adopt makes a process one that Stop, or a later sweep, ends.
func (c *Cluster) adopt(p *process) error {
	c.mu.Lock()
	c.processes = append(c.processes, p)
	c.mu.Unlock()
	return c.dir.record(p.cmd.Process.Pid)
}

// end notes the first reason for which the cluster is no longer whole.
func (c *Cluster) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopping {
		c.stopping = true
		c.overErr = err
		close(c.over)
	}
}

// Stop ends every process and removes the data. It may be called more than once.
func (c *Cluster) Stop() error { return c.stop() }

func (c *Cluster) shutdown() error {
	c.end(nil)
	c.mu.Lock()
	processes := slices.Clone(c.processes)
	c.mu.Unlock()
	var errs []error
	for _, p := range slices.Backward(processes) {
		errs = append(errs, p.kill())
	}
	c.thread.stop()
	return errors.Join(append(errs, c.dir.remove())...)
}

// Wait returns when Stop was called (nil), when a process of the cluster died on its own (an error that names it
// and quotes its log), or when ctx ends (its cause).
func (c *Cluster) Wait(ctx context.Context) error {
	select {
	case <-c.over:
		return c.overErr
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Config returns an administrator's client configuration without client-side rate limit. The caller owns it.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// Kubeconfig returns the path of the administrator's kubeconfig file. It goes with the cluster.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Dir returns the folder with the components' logs (<name>.log). It goes with the cluster.
func (c *Cluster) Dir() string { return c.dir.path }

// User returns the client configuration of a user with a certificate of its own, for tests of authorization.
// A service account is the user system:serviceaccount:<namespace>:<name>.
func (c *Cluster) User(name string, groups ...string) (*rest.Config, error) {
	pair, err := c.ca.client(name, groups)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: url(c.ports.apiServer),
		TLSClientConfig: rest.TLSClientConfig{
			CAData: c.ca.cert, CertData: pair.cert, KeyData: pair.key,
		},
		QPS: -1, // no limit: tests measure the product's own limits
	}, nil
}

// WriteKubeconfig writes a self-contained kubeconfig for a user, for a process to be run as that user.
func (c *Cluster) WriteKubeconfig(path, user string, groups ...string) error {
	config, err := c.User(user, groups...)
	if err != nil {
		return err
	}
	file := clientcmdapi.NewConfig()
	file.Clusters["slipway"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	file.Contexts["slipway"] = &clientcmdapi.Context{Cluster: "slipway", AuthInfo: user}
	file.CurrentContext = "slipway"
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		return fmt.Errorf("writing kubeconfig of user %q: %w", user, err)
	}
	return nil
}

// String lists the cluster's endpoints, processes and files for a person.
func (c *Cluster) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "API server  %s\nkubeconfig  %s\netcd        %s\nlogs        %s\nprocesses  ",
		url(c.ports.apiServer), c.kubeconfig, url(c.ports.etcd), c.dir.path)
	for name, pid := range c.PIDs() {
		fmt.Fprintf(&b, " %s(%d)", name, pid)
	}
	return b.String()
}
