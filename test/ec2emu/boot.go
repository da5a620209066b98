// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-sh/slipway/test/ec2emu/userdata"
)

// joinRetry is how long a kubelet waits after its cluster refused it.
const joinRetry = time.Second

// Kubelet is where booted machines join; the zero of it (nil) means instances
// never join.
type Kubelet interface {
	// Join registers the Node, NotReady first.
	Join(ctx context.Context, m Machine) error
	// Leave says that the machine is gone: heartbeats stop.
	Leave(ctx context.Context, nodeName string)
}

// event records what happened to an instance. e.mu is held.
func (e *Emulator) event(i *instance, t EventType, reason string) {
	e.rec.event(Event{
		At: e.clock.Now(), Type: t, InstanceID: i.id, NodeName: i.dnsName,
		InstanceType: i.offer.name, Zone: i.subnet.Zone, Reason: reason,
	})
	e.log.V(1).Info("Instance changed", "event", string(t), "instanceID", i.id, "instanceType", i.offer.name, "zone", i.subnet.Zone, "reason", reason)
}

func (i *instance) print(format string, args ...any) {
	i.console = append(i.console, fmt.Sprintf(format, args...))
}

// spawn runs fn beside the emulator, and waits for it in Close. e.mu is held.
func (e *Emulator) spawn(fn func()) {
	if !e.closed {
		e.tasks.Go(fn)
	}
}

// boot enters the machine's future into the agenda. e.mu is held.
func (e *Emulator) boot(i *instance) {
	d := e.drawDelays(i)
	e.agenda.add(i.launched.Add(d.running), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if i.state == ec2types.InstanceStateNamePending {
			e.setState(i, ec2types.InstanceStateNameRunning)
			i.print("cloud-init: booted %s in %s", i.image.Name, i.subnet.Zone)
			e.event(i, Running, "")
		}
	})
	i.readyTime = d.ready - d.registered
	e.agenda.add(i.launched.Add(d.registered), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if i.state == ec2types.InstanceStateNameRunning {
			e.join(i, d.never)
		}
	})
}

// join lets the machine read its user data and register. e.mu is held.
func (e *Emulator) join(i *instance, never bool) {
	m, err := e.machine(i)
	switch {
	case err != nil:
		i.print("nodeadm: %v", err)
		e.event(i, NotJoined, err.Error())
		return
	case never:
		i.print("kubelet: unable to register node with API server")
		e.event(i, NotJoined, "the machine hangs (NeverRegisters)")
		return
	case e.kubelet == nil:
		e.event(i, NotJoined, "no kubelet is set")
		return
	}
	ctx, cancel := context.WithCancel(e.ctx)
	i.stopJoin, i.joinDone = cancel, make(chan struct{})
	i.kubelet = e.kubelet
	kubelet := e.kubelet
	e.spawn(func() {
		defer close(i.joinDone)
		for !e.tryJoin(ctx, kubelet, i, m) {
			timer := e.clock.NewTimer(joinRetry)
			select {
			case <-timer.C():
			case <-ctx.Done():
			}
			timer.Stop()
		}
	})
}

// tryJoin joins once; it reports whether there is nothing more to do.
func (e *Emulator) tryJoin(ctx context.Context, k Kubelet, i *instance, m Machine) bool {
	if ctx.Err() != nil {
		return true
	}
	err := k.Join(ctx, m)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		i.print("kubelet: registering node: %v", err)
		if ctx.Err() == nil {
			e.event(i, NotJoined, err.Error())
		}
		return false
	}
	// Registered even if the machine is being shut down meanwhile: its Leave
	// waits for this and must happen.
	i.joined = true
	i.print("kubelet: registered node %s", m.NodeName)
	e.event(i, Joined, "")
	return true
}

// parser reads a family's user data.
func (f Family) parser() func([]byte) (*userdata.Config, error) {
	switch f {
	case Bottlerocket:
		return userdata.ParseBottlerocket
	case AL2:
		return userdata.ParseBootstrap
	case Windows:
		return userdata.ParseWindows
	default:
		return userdata.ParseNodeConfig
	}
}

// machine reads the user data of an instance. e.mu is held. The error is the
// reason why no node comes of it.
func (e *Emulator) machine(i *instance) (Machine, error) {
	config, err := i.image.Family.parser()(i.userData)
	if err != nil {
		return Machine{}, err
	}
	profile := e.world.profiles[i.profile]
	switch {
	case config.ClusterName != e.opts.ClusterName:
		return Machine{}, fmt.Errorf("finding cluster: no cluster %q in this account", config.ClusterName)
	case e.opts.ClusterEndpoint != "" && config.Endpoint != e.opts.ClusterEndpoint:
		return Machine{}, fmt.Errorf("connecting to API server: no route to %q", config.Endpoint)
	case len(e.opts.ClusterCA) > 0 && !bytes.Equal(bytes.TrimSpace(config.CA), bytes.TrimSpace(e.opts.ClusterCA)):
		return Machine{}, fmt.Errorf("connecting to API server: certificate signed by unknown authority")
	case profile == nil || len(profile.Roles) == 0:
		return Machine{}, fmt.Errorf("authenticating to API server: instance profile %q gives no role", i.profile)
	}
	for _, image := range config.Images {
		i.print("containerd: pulling %s", image)
	}
	return e.newMachine(i, config), nil
}

// shutDown begins the end of an instance; again it does nothing. e.mu is held.
func (e *Emulator) shutDown(i *instance, reason string) {
	if i.state == ec2types.InstanceStateNameShuttingDown || i.state == ec2types.InstanceStateNameTerminated {
		return
	}
	i.reason = reason
	e.setState(i, ec2types.InstanceStateNameShuttingDown)
	e.event(i, ShuttingDown, reason)
	e.leave(i)
	gone := e.clock.Now().Add(e.terminationDelay(i))
	e.agenda.add(gone, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.setState(i, ec2types.InstanceStateNameTerminated)
		if i.reserved != nil {
			i.reserved.used--
			i.reserved = nil
		}
		i.subnet.returnAddress(i.address)
		for _, id := range i.volumes {
			delete(e.world.tags, id)
		}
		delete(e.world.tags, i.interfaceID)
		e.event(i, Terminated, "")
	})
	e.agenda.add(gone.Add(e.pace(e.opts.TerminatedFor)), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.world.instances, i.id)
		delete(e.world.tags, i.id)
		e.world.instanceList = slices.DeleteFunc(slices.Clone(e.world.instanceList), func(o *instance) bool { return o == i })
	})
}

// leave ends the machine's node, if it has one: heartbeats stop. e.mu is held.
func (e *Emulator) leave(i *instance) {
	if i.stopJoin == nil {
		return
	}
	i.stopJoin()
	i.stopJoin = nil
	e.spawn(func() {
		<-i.joinDone
		e.mu.Lock()
		joined, kubelet := i.joined, i.kubelet
		e.mu.Unlock()
		if joined {
			kubelet.Leave(e.ctx, i.dnsName)
		}
	})
}
