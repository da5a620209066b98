// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/slipway-sh/slipway/manifests/crds"
	"github.com/slipway-sh/slipway/manifests/install"
)

// Webhook is the name of the process that StartWebhook starts.
const Webhook = "slipway-webhook"

// InstallAdmission installs admission as rendered in [install.Admission], native policies included. Its Deployments are left out:
// nothing here runs containers. Call it before StartSlipway if the bed's Installation is that one: the scheduler watches WorkloadPolicies.
func (b *Bed) InstallAdmission(ctx context.Context) error {
	definition, err := crds.Files.ReadFile("slipway.sh_workloadpolicies.yaml")
	if err != nil {
		return err
	}
	if err := b.Cluster.Apply(ctx, definition); err != nil {
		return err
	}
	port, err := b.port(admissionPort)
	if err != nil {
		return err
	}
	if err := b.Cluster.Apply(ctx, admission(port)); err != nil {
		return fmt.Errorf("installing admission: %w", err)
	}
	return nil
}

// admissionPort is the name of the port on which the API server asks.
const admissionPort = Webhook + "-admission"

// StartWebhook starts one replica of slipway-webhook, which the API server asks directly. InstallAdmission comes before it.
func (b *Bed) StartWebhook() error {
	in, err := ReadInstallation(install.Admission)
	if err != nil {
		return err
	}
	ports := map[string]int{}
	for _, name := range []string{Webhook, Webhook + "-health", admissionPort} {
		if ports[name], err = b.port(name); err != nil {
			return err
		}
	}
	account, args, env := in.Process(Webhook)
	if err := b.Cluster.WriteKubeconfig(b.kubeconfig(Webhook), serviceAccount(account), serviceAccountGroups()...); err != nil {
		return err
	}
	b.installation.containers[Webhook] = container{account: account, args: args, env: env}
	return b.run(Webhook, Webhook, []string{
		"--kubeconfig=" + b.kubeconfig(Webhook), "--bind-address=127.0.0.1", "--port=" + strconv.Itoa(ports[admissionPort]),
		"--metrics-port=" + strconv.Itoa(ports[Webhook]), "--health-probe-port=" + strconv.Itoa(ports[Webhook+"-health"]),
	})
}

// admission is the installation without Deployments, and with the port of a process of this machine in the place of the Service.
func admission(port int) []byte {
	var kept [][]byte
	for document := range bytes.SplitSeq(install.Admission, []byte("\n---\n")) {
		if !bytes.Contains(document, []byte("\nkind: Deployment\n")) {
			kept = append(kept, document)
		}
	}
	out := bytes.Join(kept, []byte("\n---\n"))
	for _, path := range []string{"mutate", "validate"} {
		service := fmt.Appendf(nil, "service: {name: slipway-webhook, namespace: %s, path: /%s, port: 443}", Namespace, path)
		out = bytes.ReplaceAll(out, service, fmt.Appendf(nil, "url: \"https://localhost:%d/%s\"", port, path))
	}
	return out
}
