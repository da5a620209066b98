// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/smithy-go/middleware"
	"github.com/google/go-cmp/cmp"
)

// fill sets every exported member below v, lists to two elements.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		switch v.Type() {
		case reflect.TypeFor[time.Time]():
			v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, *n%60, 0, time.UTC)))
			return
		case reflect.TypeFor[middleware.Metadata]():
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), n)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte("<&>" + fmt.Sprint(*n)))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.String:
		v.SetString(fmt.Sprintf("<a & b> %d", *n))
	case reflect.Bool:
		v.SetBool(*n%2 == 0)
	case reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Float64, reflect.Float32:
		v.SetFloat(float64(*n) / 4)
	default:
		panic("the SDK has members of kind " + v.Kind().String())
	}
}

func filled[T any]() *T {
	v, n := new(T), 0
	fill(reflect.ValueOf(v).Elem(), &n)
	return v
}

// ignoring what is no member: unexported markers and call metadata.
var members = cmp.Options{
	cmp.FilterPath(func(p cmp.Path) bool {
		f, ok := p.Last().(cmp.StructField)
		return ok && (f.Name() == "ResultMetadata" || strings.HasPrefix(f.Name(), "noSmithy"))
	}, cmp.Ignore()),
}

// roundTrip sends a request with all members through a stock client; the server
// decodes it and answers with all members. Both must arrive as they left.
func roundTrip[I, O any](t *testing.T, d Dialect, method any) {
	in, out := filled[I](), filled[O]()
	var got *I
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		got = new(I)
		if err := Decode(d, r.Form, got); err != nil {
			t.Errorf("decoding: %v", err)
		}
		var b bytes.Buffer
		action := r.Form.Get("Action")
		b.WriteString("<" + action + "Response>")
		if d == Query {
			b.WriteString("<" + action + "Result>")
		}
		if err := Encode(d, &b, out); err != nil {
			t.Errorf("encoding: %v", err)
		}
		if d == Query {
			b.WriteString("</" + action + "Result>")
		}
		b.WriteString("</" + action + "Response>")
		_, _ = w.Write(b.Bytes())
	}))
	defer server.Close()
	cfg := aws.Config{Region: "us-east-1", BaseEndpoint: aws.String(server.URL), Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")}
	var client any = ec2.NewFromConfig(cfg)
	if d == Query {
		client = iam.NewFromConfig(cfg)
	}
	results := reflect.ValueOf(method).Call([]reflect.Value{reflect.ValueOf(client), reflect.ValueOf(t.Context()), reflect.ValueOf(in)})
	if err, _ := reflect.TypeAssert[error](results[1]); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(in, got, members); diff != "" {
		t.Errorf("request (-sent +decoded):\n%s", diff)
	}
	if diff := cmp.Diff(out, results[0].Interface(), members); diff != "" {
		t.Errorf("answer (-encoded +received):\n%s", diff)
	}
}

func TestRoundTrip(t *testing.T) {
	tests := map[string]func(*testing.T){
		"CreateFleet": func(t *testing.T) {
			roundTrip[ec2.CreateFleetInput, ec2.CreateFleetOutput](t, EC2, (*ec2.Client).CreateFleet)
		},
		"CreateLaunchTemplate": func(t *testing.T) {
			roundTrip[ec2.CreateLaunchTemplateInput, ec2.CreateLaunchTemplateOutput](t, EC2, (*ec2.Client).CreateLaunchTemplate)
		},
		"CreateTags": func(t *testing.T) {
			roundTrip[ec2.CreateTagsInput, ec2.CreateTagsOutput](t, EC2, (*ec2.Client).CreateTags)
		},
		"DeleteLaunchTemplate": func(t *testing.T) {
			roundTrip[ec2.DeleteLaunchTemplateInput, ec2.DeleteLaunchTemplateOutput](t, EC2, (*ec2.Client).DeleteLaunchTemplate)
		},
		"DeleteTags": func(t *testing.T) {
			roundTrip[ec2.DeleteTagsInput, ec2.DeleteTagsOutput](t, EC2, (*ec2.Client).DeleteTags)
		},
		"DescribeAvailabilityZones": func(t *testing.T) {
			roundTrip[ec2.DescribeAvailabilityZonesInput, ec2.DescribeAvailabilityZonesOutput](t, EC2, (*ec2.Client).DescribeAvailabilityZones)
		},
		"DescribeCapacityReservations": func(t *testing.T) {
			roundTrip[ec2.DescribeCapacityReservationsInput, ec2.DescribeCapacityReservationsOutput](t, EC2, (*ec2.Client).DescribeCapacityReservations)
		},
		"DescribePlacementGroups": func(t *testing.T) {
			roundTrip[ec2.DescribePlacementGroupsInput, ec2.DescribePlacementGroupsOutput](t, EC2, (*ec2.Client).DescribePlacementGroups)
		},
		"DescribeImages": func(t *testing.T) {
			roundTrip[ec2.DescribeImagesInput, ec2.DescribeImagesOutput](t, EC2, (*ec2.Client).DescribeImages)
		},
		"DescribeInstanceStatus": func(t *testing.T) {
			roundTrip[ec2.DescribeInstanceStatusInput, ec2.DescribeInstanceStatusOutput](t, EC2, (*ec2.Client).DescribeInstanceStatus)
		},
		"DescribeInstanceTypeOfferings": func(t *testing.T) {
			roundTrip[ec2.DescribeInstanceTypeOfferingsInput, ec2.DescribeInstanceTypeOfferingsOutput](t, EC2, (*ec2.Client).DescribeInstanceTypeOfferings)
		},
		"DescribeInstanceTypes": func(t *testing.T) {
			roundTrip[ec2.DescribeInstanceTypesInput, ec2.DescribeInstanceTypesOutput](t, EC2, (*ec2.Client).DescribeInstanceTypes)
		},
		"DescribeInstances": func(t *testing.T) {
			roundTrip[ec2.DescribeInstancesInput, ec2.DescribeInstancesOutput](t, EC2, (*ec2.Client).DescribeInstances)
		},
		"DescribeLaunchTemplateVersions": func(t *testing.T) {
			roundTrip[ec2.DescribeLaunchTemplateVersionsInput, ec2.DescribeLaunchTemplateVersionsOutput](t, EC2, (*ec2.Client).DescribeLaunchTemplateVersions)
		},
		"DescribeLaunchTemplates": func(t *testing.T) {
			roundTrip[ec2.DescribeLaunchTemplatesInput, ec2.DescribeLaunchTemplatesOutput](t, EC2, (*ec2.Client).DescribeLaunchTemplates)
		},
		"DescribeSecurityGroups": func(t *testing.T) {
			roundTrip[ec2.DescribeSecurityGroupsInput, ec2.DescribeSecurityGroupsOutput](t, EC2, (*ec2.Client).DescribeSecurityGroups)
		},
		"DescribeSpotPriceHistory": func(t *testing.T) {
			roundTrip[ec2.DescribeSpotPriceHistoryInput, ec2.DescribeSpotPriceHistoryOutput](t, EC2, (*ec2.Client).DescribeSpotPriceHistory)
		},
		"DescribeSubnets": func(t *testing.T) {
			roundTrip[ec2.DescribeSubnetsInput, ec2.DescribeSubnetsOutput](t, EC2, (*ec2.Client).DescribeSubnets)
		},
		"DescribeTags": func(t *testing.T) {
			roundTrip[ec2.DescribeTagsInput, ec2.DescribeTagsOutput](t, EC2, (*ec2.Client).DescribeTags)
		},
		"GetConsoleOutput": func(t *testing.T) {
			roundTrip[ec2.GetConsoleOutputInput, ec2.GetConsoleOutputOutput](t, EC2, (*ec2.Client).GetConsoleOutput)
		},
		"RunInstances": func(t *testing.T) {
			roundTrip[ec2.RunInstancesInput, ec2.RunInstancesOutput](t, EC2, (*ec2.Client).RunInstances)
		},
		"TerminateInstances": func(t *testing.T) {
			roundTrip[ec2.TerminateInstancesInput, ec2.TerminateInstancesOutput](t, EC2, (*ec2.Client).TerminateInstances)
		},
	}
	listed, err := os.ReadFile("actions.txt")
	if err != nil {
		t.Fatal(err)
	}
	for action := range strings.FieldsSeq(string(listed)) {
		test := tests[action]
		if test == nil {
			t.Errorf("action %s has names but no test", action)
			continue
		}
		t.Run(action, test)
	}
	t.Run("iam", func(t *testing.T) {
		roundTrip[iam.CreateInstanceProfileInput, iam.CreateInstanceProfileOutput](t, Query, (*iam.Client).CreateInstanceProfile)
		roundTrip[iam.ListInstanceProfilesInput, iam.ListInstanceProfilesOutput](t, Query, (*iam.Client).ListInstanceProfiles)
		roundTrip[iam.TagInstanceProfileInput, iam.TagInstanceProfileOutput](t, Query, (*iam.Client).TagInstanceProfile)
	})
}

func TestDecodeErrors(t *testing.T) {
	tests := []struct {
		name  string
		query string
		want  ParameterError
	}{
		{"unknown", "Filtre.1.Name=a", ParameterError{Name: "Filtre", Unknown: true}},
		{"unknown below a list", "Filter.1.Nome=a", ParameterError{Name: "Filter.1.Nome", Unknown: true}},
		{"no index", "Filter.x.Name=a", ParameterError{Name: "Filter.x", Unknown: true}},
		{"not a number", "MaxResults=many", ParameterError{Name: "MaxResults", Value: "many"}},
		{"not a boolean", "DryRun=maybe", ParameterError{Name: "DryRun", Value: "maybe"}},
		{"a structure for a scalar", "MaxResults.1=5", ParameterError{Name: "MaxResults", Unknown: true}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			form, err := url.ParseQuery("Action=DescribeSubnets&Version=2016-11-15&" + test.query)
			if err != nil {
				t.Fatal(err)
			}
			var got *ParameterError
			if err := Decode(EC2, form, &ec2.DescribeSubnetsInput{}); !errors.As(err, &got) {
				t.Fatalf("got %v, want a ParameterError", err)
			}
			if diff := cmp.Diff(test.want, *got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
