// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"k8s.io/utils/clock"
)

const (
	// redraw is how often a frame is made at most.
	redraw = time.Second
	// fps bounds how often the terminal is written to, keys included.
	fps = 10
)

// UI is the terminal's.
type UI struct {
	World *World
	Clock clock.PassiveClock
	Title string
	In    io.Reader
	Out   io.Writer
}

// Run shows the world until q is pressed or ctx ends.
func (u *UI) Run(ctx context.Context) error {
	m := &model{ui: u, look: Look{Title: u.Title, By: ByName, Width: 80, Height: 24, Paint: paint}}
	m.refresh()
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(u.In), tea.WithOutput(u.Out), tea.WithFPS(fps)).Run()
	if err != nil && (ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted)) {
		return nil //nolint:nilerr // being ended is how it ends
	}
	return err
}

// paint colours text in the terminal's own sixteen colours.
func paint(k Kind, text string) string {
	s := lipgloss.NewStyle()
	switch k {
	case Heading:
		s = s.Bold(true)
	case Concern:
		s = s.Foreground(lipgloss.Yellow)
	case Bad:
		s = s.Foreground(lipgloss.Red)
	case Faint:
		s = s.Faint(true)
	case Good:
	}
	return s.Render(text)
}

// tick is the time to look whether there is something new.
type tick struct{}

// model is the state of the screen.
type model struct {
	ui   *UI
	look Look
	text string
	seen int
	// snapshot is what is shown, of so many changes.
	snapshot Snapshot
	changes  uint64
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return next() }

func next() tea.Cmd { return tea.Tick(redraw, func(time.Time) tea.Msg { return tick{} }) }

// View implements tea.Model.
func (m *model) View() tea.View {
	v := tea.NewView(m.text)
	v.AltScreen = true
	v.WindowTitle = "slipway top"
	return v
}

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tick:
		m.refresh()
		return m, next()
	case tea.WindowSizeMsg:
		m.look.Width, m.look.Height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		if m.key(msg.String()) {
			return m, tea.Quit
		}
	default:
		return m, nil
	}
	m.draw()
	return m, nil
}

// key obeys a key and reports whether it ends the program.
func (m *model) key(name string) (quit bool) {
	page := max(m.seen-1, 1)
	switch name {
	case "q", "ctrl+c", "esc":
		return true
	case "up", "k":
		m.look.From--
	case "down", "j":
		m.look.From++
	case "pgup", "b":
		m.look.From -= page
	case "pgdown", "space", "f":
		m.look.From += page
	case "home", "g":
		m.look.From = 0
	case "end", "G":
		m.look.From = len(m.snapshot.Nodes)
	case "n", "c", "p", "a":
		m.look.By = map[string]Order{"n": ByName, "c": ByCPU, "p": ByPrice, "a": ByAge}[name]
		m.look.From = 0
		sortNodes(m.snapshot.Nodes, m.look.By)
	}
	m.look.From = min(max(m.look.From, 0), max(len(m.snapshot.Nodes)-m.seen, 0))
	return false
}

// refresh takes a new snapshot if something has changed, and moves the clock on.
func (m *model) refresh() {
	now := m.ui.Clock.Now()
	if changes := m.ui.World.Changes(); changes != m.changes || m.snapshot.At.IsZero() {
		m.changes = changes
		m.snapshot = m.ui.World.Snapshot(now, m.look.By)
	}
	m.snapshot.At = now
	m.draw()
}

func (m *model) draw() { m.text, m.seen = Frame(&m.snapshot, m.look) }
