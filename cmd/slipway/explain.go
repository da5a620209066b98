// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-sh/slipway/cmd/slipway/explain"
)

func explainCommand() *cobra.Command {
	var output string
	at := target{}
	cmd := &cobra.Command{
		Use:   "explain pod|node|nodeclaim|nodepool NAME",
		Short: "Tell why a pod waits or is where it is, why a node was bought and what keeps it",
		Long: "Tells the story of an object in order of time, from its events, conditions and Slipway's annotations, and how things\n" +
			"stand now. Only the API server is asked: it works while Slipway's processes are down.",
		Example: "  slipway explain pod -n shop cart-7d9c4f-x2x9k\n  slipway explain nodepool/general\n  slipway explain node ip-10-0-1-23.ec2.internal -o json",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name, err := subject(args)
			if err != nil {
				return err
			}
			if output != "" && output != "json" {
				return fmt.Errorf("--output %q is not json", output)
			}
			kube, namespace, err := at.connect()
			if err != nil {
				return err
			}
			facts, err := explain.Gather(cmd.Context(), kube, kind, types.NamespacedName{Namespace: namespace, Name: name})
			if err != nil {
				return at.explainError(err)
			}
			story := facts.Tell(time.Now())
			if output == "json" {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(story)
			}
			return story.Write(cmd.OutOrStdout())
		},
	}
	at.addFlags(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "json; a text if empty")
	return cmd
}

// subject reads "kind name" or "kind/name", as kubectl does.
func subject(args []string) (kind, name string, err error) {
	kind = args[0]
	if len(args) == 2 {
		name = args[1]
	} else if k, n, ok := strings.Cut(kind, "/"); ok {
		kind, name = k, n
	}
	if name == "" {
		return "", "", errors.New("whose story? Give a kind and a name, e.g. \"pod cart-7d9c4f-x2x9k\"")
	}
	full, ok := explain.Kinds()[strings.ToLower(kind)]
	if !ok {
		return "", "", fmt.Errorf("cannot explain a %q: it is not pod, node, nodeclaim or nodepool", kind)
	}
	return full, name, nil
}
