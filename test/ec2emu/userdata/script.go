// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package userdata

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// ParseBootstrap reads user data as an Amazon Linux 2 image runs it: a shell
// script, or a MIME archive with some, of which one calls the image's bootstrap
// script (amazon-eks-ami, files/bootstrap.sh). Of the script only that call is
// read. What bootstrap.sh would look up in EKS must be given.
func ParseBootstrap(userData []byte) (*Config, error) {
	scripts, err := parts(userData, "text/x-shellscript")
	if err != nil {
		return nil, err
	}
	words, err := callOf(bytes.Join(scripts, []byte("\n")), "/etc/eks/bootstrap.sh", `\`)
	if err != nil {
		return nil, err
	}
	c := &Config{}
	b := bootstrap{config: c, options: map[string]*string{
		"--apiserver-endpoint": &c.Endpoint, "--b64-cluster-ca": new(string), "--kubelet-extra-args": new(string), "--local-disks": new(string),
		"--dns-cluster-ip": new(string), "--use-max-pods": new(string), "--ip-family": new(string), "--service-ipv4-cidr": &c.CIDR,
	}}
	for i := 1; i < len(words); i++ {
		if strings.HasPrefix(words[i], "--") {
			if i+1 == len(words) {
				return nil, fmt.Errorf("running bootstrap.sh: option %s has no value", words[i])
			}
			if err := b.set(words[i], words[i+1]); err != nil {
				return nil, err
			}
			i++
			continue
		}
		c.ClusterName = words[i]
	}
	c.RAID0 = strings.EqualFold(*b.options["--local-disks"], "raid0")
	return c, b.finish(*b.options["--b64-cluster-ca"], *b.options["--kubelet-extra-args"])
}

// ParseWindows reads user data as a Windows image runs it: PowerShell between
// <powershell> tags that calls Start-EKSBootstrap.ps1.
func ParseWindows(userData []byte) (*Config, error) {
	_, script, _ := bytes.Cut(userData, []byte("<powershell>"))
	script, _, ok := bytes.Cut(script, []byte("</powershell>"))
	if !ok {
		return nil, errors.New("parsing user data: no <powershell> in it")
	}
	words, err := callOf(script, "$EKSBootstrapScriptFile", "`")
	if err != nil {
		return nil, err
	}
	c := &Config{}
	b := bootstrap{config: c, options: map[string]*string{
		"-EKSClusterName": &c.ClusterName, "-APIServerEndpoint": &c.Endpoint, "-Base64ClusterCA": new(string),
		"-KubeletExtraArgs": new(string), "-DNSClusterIP": new(string),
	}}
	for i := 1; i+1 < len(words); i += 2 {
		if err := b.set(words[i], words[i+1]); err != nil {
			return nil, err
		}
	}
	return c, b.finish(*b.options["-Base64ClusterCA"], *b.options["-KubeletExtraArgs"])
}

// bootstrap is a call of a bootstrap script that is being read.
type bootstrap struct {
	config  *Config
	options map[string]*string
}

func (b bootstrap) set(option, value string) error {
	to := b.options[option]
	if to == nil {
		return fmt.Errorf("running the bootstrap script: unknown option %s", option)
	}
	*to = value
	return nil
}

func (b bootstrap) finish(ca, arguments string) error {
	raw, err := base64.StdEncoding.DecodeString(ca)
	if err != nil {
		return fmt.Errorf("running the bootstrap script: cluster CA: %w", err)
	}
	b.config.CA = raw
	words, err := split(arguments)
	if err != nil {
		return fmt.Errorf("parsing kubelet flags: %w", err)
	}
	if err := b.config.applyFlags(words); err != nil {
		return err
	}
	return b.config.validate()
}

// pairs reads key=value,key=value of kubelet flags.
func pairs(text, separator string) map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if key, value, ok := strings.Cut(pair, separator); ok {
			out[key] = value
		}
	}
	return out
}

// callOf returns the words of the last line that calls a program, with the lines
// that continue it.
func callOf(script []byte, program, continuation string) ([]string, error) {
	text := strings.ReplaceAll(strings.ReplaceAll(string(script), "\r\n", "\n"), continuation+"\n", " ")
	call := ""
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimPrefix(strings.TrimSpace(line), "& "); strings.HasPrefix(line, program+" ") {
			call = line
		}
	}
	if call == "" {
		return nil, fmt.Errorf("parsing user data: nothing calls %s", program)
	}
	return split(call)
}

// split splits a line into words as a shell does, quotes of both kinds taken off.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	quote, inWord := rune(0), false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, inWord = r, true
		case quote == 0 && (r == ' ' || r == '\t' || r == '\n'):
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quote %c is open", quote)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
