// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// priceFilter is a filter of GetProducts; all are TERM_MATCH, ignoring case.
type priceFilter struct{ Field, Type, Value string }

func (e *Emulator) getProducts(c *call) (any, error) {
	var in struct {
		ServiceCode string
		Filters     []priceFilter
		MaxResults  *int32
		NextToken   *string
	}
	if err := jsonInto(c, &in); err != nil {
		return nil, err
	}
	if in.ServiceCode != "AmazonEC2" {
		return nil, invalid("NotFoundException", "Service %s is not found", in.ServiceCode)
	}
	for _, f := range in.Filters {
		if f.Type != "TERM_MATCH" {
			return nil, invalid("InvalidParameterException", "Filter type %s is not supported here", f.Type)
		}
	}
	var found []*offer
	for _, o := range e.catalog.offers {
		if o.price > 0 && priced(e.priceAttributes(o), in.Filters) {
			found = append(found, o)
		}
	}
	items, next, err := page(found, in.MaxResults, in.NextToken, pageLimits{1, 100, 100})
	if err != nil {
		return nil, err
	}
	out := struct {
		FormatVersion string
		PriceList     []string
		NextToken     *string `json:",omitempty"`
	}{"aws_v1", []string{}, next}
	for _, o := range items {
		text, err := e.priceItem(o)
		if err != nil {
			return nil, err
		}
		out.PriceList = append(out.PriceList, text)
	}
	return out, nil
}

func priced(attributes map[string]string, filters []priceFilter) bool {
	for _, f := range filters {
		if !strings.EqualFold(attributes[f.Field], f.Value) {
			return false
		}
	}
	return true
}

// priceAttributes are those of the one product the emulator sells a type as.
func (e *Emulator) priceAttributes(o *offer) map[string]string {
	tenancy, family := "Shared", "Compute Instance"
	if aws.ToBool(o.info.BareMetal) {
		tenancy, family = "Dedicated", "Compute Instance (bare metal)"
	}
	return map[string]string{
		"instanceType": o.name, "regionCode": e.opts.Region, "servicecode": "AmazonEC2", "serviceCode": "AmazonEC2",
		"operatingSystem": "Linux", "preInstalledSw": "NA", "capacitystatus": "Used", "marketoption": "OnDemand",
		"tenancy": tenancy, "productFamily": family, "locationType": "AWS Region", "currentGeneration": map[bool]string{true: "Yes", false: "No"}[aws.ToBool(o.info.CurrentGeneration)],
		"vcpu": strconv.Itoa(int(aws.ToInt32(o.info.VCpuInfo.DefaultVCpus))), "licenseModel": "No License required",
		"memory": strconv.FormatFloat(float64(aws.ToInt64(o.info.MemoryInfo.SizeInMiB))/1024, 'f', -1, 64) + " GiB",
	}
}

// priceItem is the JSON text of one product, as the Price List API has it.
func (e *Emulator) priceItem(o *offer) (string, error) {
	sku := fmt.Sprintf("%016X", e.rand.draw("sku", o.name).Uint64())
	attributes := e.priceAttributes(o)
	family := attributes["productFamily"]
	delete(attributes, "productFamily")
	delete(attributes, "serviceCode")
	term, rate := sku+".JRTCKXETXF", sku+".JRTCKXETXF.6YS6EN2CT7"
	raw, err := json.Marshal(map[string]any{
		"product":     map[string]any{"productFamily": family, "attributes": attributes, "sku": sku},
		"serviceCode": "AmazonEC2",
		"terms": map[string]any{"OnDemand": map[string]any{term: map[string]any{
			"sku": sku, "offerTermCode": "JRTCKXETXF", "termAttributes": map[string]any{},
			"priceDimensions": map[string]any{rate: map[string]any{
				"rateCode": rate, "unit": "Hrs", "beginRange": "0", "endRange": "Inf", "appliesTo": []string{},
				"description":  fmt.Sprintf("$%s per On Demand Linux %s Instance Hour", formatPrice(o.price), o.name),
				"pricePerUnit": map[string]string{"USD": strconv.FormatFloat(o.price, 'f', 10, 64)},
			}},
		}}},
	})
	return string(raw), err
}
