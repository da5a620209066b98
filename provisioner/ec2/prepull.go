// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"encoding/base64"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// AnnotationImagePrepull on an EC2NodeClass says whether nodes pull the images of their pool's pods while they boot. AL2023
// does unless it is "false", Bottlerocket if it is "true"; other families can't.
const AnnotationImagePrepull = "slipway.sh/image-prepull"

// pullUnit names the systemd unit (AL2023) and the static pod (Bottlerocket) that pull images.
const pullUnit = "slipway-image-pull"

// maxImageName bounds an image's name, in bytes (the host's 253, a path of 255, and tag and digest, rounded up).
const maxImageName = 768

// Prepulls reports whether nodes of the class pull images while they boot.
func Prepulls(class *v1.EC2NodeClass) bool {
	family, err := Family(class)
	if err != nil {
		return false
	}
	switch asked := class.Annotations[AnnotationImagePrepull]; family {
	case v1.AMIFamilyAL2023:
		return asked != "false"
	case v1.AMIFamilyBottlerocket:
		return asked == "true"
	}
	return false
}

// ImageName reports whether the text can be an image's name. It goes into a script that runs as root on the node and comes
// from whoever may create pods: nothing but the characters of references (github.com/distribution/reference) is let through.
func ImageName(text string) bool {
	if text == "" || len(text) > maxImageName {
		return false
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && strings.IndexByte("._:/@-", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// pullScript is the shell script that pulls images on AL2023. All it does itself is to queue a unit, which begins when
// nodeadm has started containerd and the kubelet: neither the boot nor the node's joining waits for it or fails with it.
// ECR is asked with the node's own role, as the kubelet does (the hosts are those of its credential provider, so that no
// other gets a token); other registries without credentials. The token is handed over by pipe and kept in a directory that
// goes with the unit. Images are pulled one after the other, so that those the
// node needs to become ready keep most of the network.
//
// The command has no braces after a dollar sign: the service manager would put its own variables in their place
// (systemd.service(5), command lines), which it also does for systemd-run.
func pullScript(images []string) string {
	return `#!/bin/bash
systemd-run --no-block --collect --unit=` + pullUnit + ` --property=After=nodeadm-run.service --property=Nice=10 --property=RuntimeMaxSec=900 \
  /bin/bash -c 'command -v nerdctl >/dev/null || exit 0
DOCKER_CONFIG=$(mktemp -d) && export DOCKER_CONFIG || exit 0
trap "rm -rf $DOCKER_CONFIG" EXIT
for image; do
  host=$(echo "$image" | cut -d / -f 1)
  if [[ $host != "$known" && $host =~ ^[0-9]{12}[.]dkr[.-]ecr(-fips)?[.][a-z0-9-]+[.](amazonaws[.]com([.]cn)?|on[.](aws|amazonwebservices[.]com[.]cn))$ ]]; then
    region=$(echo "$host" | sed -E "s/^[0-9]+[.]dkr[.-]ecr(-fips)?[.]([a-z0-9-]+)[.].*/\2/")
    aws ecr get-login-password --region "$region" | nerdctl login --username AWS --password-stdin "$host" && known=$host
  fi
  nerdctl --namespace k8s.io pull --quiet "$image"
done' ` + pullUnit + ` '` + strings.Join(images, "' '") + `' || true
`
}

// pullPod is the static pod that makes Bottlerocket's kubelet pull images: settings of Bottlerocket name nothing else that
// runs beside the node's start (bootstrap containers hold it up, and come before containerd). The kubelet pulls in parallel
// there and has credentials of its own for ECR. The containers have no program that exists: each ends the moment its image
// is there, and the pod with the last.
func pullPod(images []string) (string, error) {
	pod := corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: pullUnit, Namespace: metav1.NamespaceSystem},
		Spec: corev1.PodSpec{
			HostNetwork:   true, // so that it does not wait for the network plugin
			RestartPolicy: corev1.RestartPolicyNever, ActiveDeadlineSeconds: new(int64(900)), TerminationGracePeriodSeconds: new(int64(0)),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	for i, image := range images {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: "image-" + string(rune('a'+i)), Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"/slipway-pulls-and-runs-nothing"},
		})
	}
	text, err := yaml.Marshal(pod)
	if err != nil {
		return "", invalid("writing the static pod %q: %w", pullUnit, err)
	}
	return base64.StdEncoding.EncodeToString(text), nil
}
