// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

func amounts(cpu, memory string) v1alpha1.Amounts {
	return v1alpha1.Amounts{CPU: new(resource.MustParse(cpu)), Memory: new(resource.MustParse(memory))}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// listed prints at most four of the values, and how many more there are.
func listed(values []string) string {
	const most = 4
	if len(values) <= most {
		return strings.Join(values, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(values[:most], ", "), len(values)-most)
}

// closest is the candidate that is spelled most like s, empty if none is at most a third of its letters away.
func closest(s string, candidates []string) string {
	best, least := "", len(s)/3+1
	for _, c := range candidates {
		if d := distance(s, c, least); d < least || (d == least && best == "" && d > 0) {
			best, least = c, d
		}
	}
	return best
}

// distance is the Levenshtein distance, or something above most if it is more than that.
func distance(a, b string, most int) int {
	if d := len(a) - len(b); d > most || -d > most {
		return most + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
		if slices.Min(row) > most {
			return most + 1
		}
	}
	return row[len(b)]
}
