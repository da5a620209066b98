// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"encoding/base64"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
)

// Amazon Linux 2 and Windows read scripts; a Windows machine is one in all that shows.
func TestScriptedFamiliesJoin(t *testing.T) {
	const arguments = `--node-labels="team=web"`
	tests := []struct {
		name, parameter, userData string
		os, build                 string
		pods                      int64
	}{
		{
			"al2", "/aws/service/eks/optimized-ami/1.32/amazon-linux-2/recommended/image_id",
			"#!/bin/bash\n/etc/eks/bootstrap.sh 'demo' --apiserver-endpoint 'https://127.0.0.1:6443' --b64-cluster-ca 'Y2E=' --kubelet-extra-args '" + arguments + "'",
			"linux", "", 29,
		},
		{
			"windows", "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.32/image_id",
			"<powershell>\n& $EKSBootstrapScriptFile -EKSClusterName 'demo' -APIServerEndpoint 'https://127.0.0.1:6443' -Base64ClusterCA 'Y2E=' -KubeletExtraArgs '" + arguments + "'\n</powershell>",
			"windows", "10.0.20348", 110,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := fleetBed(t, Options{})
			kubelet := &recordingKubelet{}
			b.SetKubelet(kubelet)
			image := must[*ssm.GetParameterOutput](t)(b.ssm.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String(test.parameter)}))
			b.templateWith(t, test.name, func(d *ec2types.RequestLaunchTemplateData) {
				d.ImageId, d.UserData = image.Parameter.Value, aws.String(base64.StdEncoding.EncodeToString([]byte(test.userData)))
				d.IamInstanceProfile = &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String("nodes")}
			})
			events := b.Subscribe(t.Context())
			out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleetOf(test.name, 1, onDemandType, "m5.large")))
			await(t, events, Joined)
			m := kubelet.joined[0]
			if m.OS != test.os || m.Labels["node.kubernetes.io/windows-build"] != test.build || m.Labels["team"] != "web" || m.Capacity.Pods().Value() != test.pods {
				t.Errorf("machine %+v", m)
			}
			seen := must[*ec2.DescribeInstancesOutput](t)(b.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: out.Instances[0].InstanceIds}))
			if i := seen.Reservations[0].Instances[0]; (i.Platform == ec2types.PlatformValuesWindows) != (test.os == "windows") {
				t.Errorf("platform %q", i.Platform)
			}
		})
	}
}
