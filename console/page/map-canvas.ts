/** Draws the map of clusters with cytoscape. Loaded when a person comes near the map. */
import cytoscape, { type DrawnMap, type MapElement, type MapStyle } from 'cytoscape'
import { type Canvases, type Draw, colourOf } from './drawing.ts'
import { mapOf } from './map.ts'
import type { PageModel } from './model.ts'
import { type MapLine, type MapNode, placesOf } from './plan-map.ts'

/**
 * cytoscape writes a style element into the document unless an element has this id, and the policy of the page lets
 * none in. The place of the map has the id, and page.css has the rule.
 */
const STYLE_ELEMENT_ID = '__________cytoscape_stylesheet'

/** Browsers limit the pixels of a canvas: a higher drawing has one for each of the page. */
const MOST_SHARP = 4000

/** Nothing moves, nothing can be dragged: the page scrolls under a finger, and the table has the buttons. */
export function mapDrawing(model: PageModel, browser: Canvases): Draw {
  return (place) => {
    let before = ''
    let drawn: DrawnMap | undefined
    const update = (): void => {
      const { nodes, lines } = mapOf(model)
      const width = place.clientWidth
      const colours = ['text', 'soft', 'card', 'line', 'good', 'warn', 'bad'].map((name) => colourOf(browser, name))
      const now = JSON.stringify([nodes, lines.map(({ id, state }) => [id, state]), width, colours])
      // Facts come every two seconds, and most of them change nothing here but RTTs.
      if (now === before) {
        for (const { id, label } of lines) drawn?.getElementById(id).data('label', label)
        return
      }
      before = now
      const { height, places } = placesOf(nodes, width)
      drawn?.destroy()
      place.id = STYLE_ELEMENT_ID
      place.style.height = `${height}px`
      drawn = cytoscape({
        container: place,
        elements: [
          ...nodes.map(({ id, label, what, state }) => ({
            ...{ data: { id, label }, classes: `${what} ${classOf(state)}` },
            position: places.get(id) ?? { x: 0, y: 0 },
          })),
          ...lines.map((line) => lineElement(line)),
        ],
        style: styles(colours),
        layout: { name: 'preset', fit: false, padding: 0 },
        ...{ autoungrabify: true, autounselectify: true, boxSelectionEnabled: false },
        ...{ userZoomingEnabled: false, userPanningEnabled: false },
        pixelRatio: height > MOST_SHARP ? 1 : undefined,
      })
    }
    return { update, end: () => drawn?.destroy() }
  }
}

function lineElement({ id, from, to, state, label }: MapLine): MapElement {
  return { data: { id, label, source: from, target: to }, classes: state }
}

function classOf(state: MapNode['state']): string {
  if (['reached', 'reporting', 'up'].includes(state)) return 'good'
  return ['cut off', 'silent', 'down'].includes(state) ? 'bad' : 'warn'
}

/** States differ by the kind of line too, and each text has a sign. */
function styles([
  text = '',
  soft = '',
  card = '',
  line = '',
  good = '',
  warn = '',
  bad = '',
]: readonly string[]): readonly MapStyle[] {
  const lettering = { 'font-family': 'system-ui, sans-serif', color: text }
  return [
    {
      selector: 'node',
      style: {
        ...lettering,
        ...{ shape: 'round-rectangle', width: 132, height: 40, 'background-color': card },
        ...{ label: 'data(label)', 'text-wrap': 'wrap', 'text-valign': 'center', 'text-halign': 'center' },
        ...{ 'font-size': 10, 'border-width': 1, 'border-color': line, 'border-style': 'solid' },
      },
    },
    { selector: 'node.region', style: { 'border-width': 3, 'border-style': 'double' } },
    { selector: 'node.gateway', style: { shape: 'rectangle', 'border-color': soft } },
    { selector: 'node.bad', style: { 'border-color': bad, 'border-width': 3 } },
    { selector: 'node.warn', style: { 'border-color': warn, 'border-style': 'dashed' } },
    {
      selector: 'edge',
      style: {
        ...lettering,
        ...{ 'curve-style': 'bezier', width: 2, label: 'data(label)', 'font-size': 10, 'text-rotation': 'autorotate' },
        // A border of a node may have no point that meets a line exactly, which then would not be drawn.
        ...{ 'source-endpoint': 'inside-to-node', 'target-endpoint': 'inside-to-node' },
        ...{ 'text-background-color': card, 'text-background-opacity': 1, 'text-background-padding': '2px' },
      },
    },
    { selector: 'edge.up', style: { 'line-color': good, 'line-style': 'solid' } },
    { selector: 'edge.connecting', style: { 'line-color': warn, 'line-style': 'dashed' } },
    { selector: 'edge.down', style: { 'line-color': bad, 'line-style': 'dotted', width: 3 } },
  ]
}
