/** Drawings: loaded when a person comes near, drawn again when something changes, gone with their place. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { signal } from '@preact/signals'
import t from 'tap'
import { type Canvases, type Draw, type Surface, colourOf, drawingRef } from '../../console/page/drawing.ts'

/** A browser of which a test says what is near, and what changes. */
class FakeBrowser implements Canvases {
  readonly document = { documentElement: {} }
  readonly colourChanges = new Set<() => void>()
  readonly near: ((isNear?: boolean) => void)[] = []
  readonly resized = new Set<() => void>()
  readonly IntersectionObserver: NonNullable<Canvases['IntersectionObserver']>
  readonly ResizeObserver: NonNullable<Canvases['ResizeObserver']>

  constructor() {
    const { near, resized } = this
    this.IntersectionObserver = class {
      isOn = true
      constructor(call: (seen: readonly { isIntersecting: boolean }[]) => void) {
        call([{ isIntersecting: false }])
        near.push((isIntersecting = true) => {
          if (this.isOn) call([{ isIntersecting: !isIntersecting }, { isIntersecting }])
        })
      }
      observe(): void {
        this.isOn = true
      }
      disconnect(): void {
        this.isOn = false
      }
    }
    this.ResizeObserver = class {
      readonly #call: () => void
      constructor(call: () => void) {
        this.#call = call
      }
      observe(): void {
        resized.add(this.#call)
      }
      disconnect(): void {
        resized.delete(this.#call)
      }
    }
  }

  getComputedStyle(): { getPropertyValue: (name: string) => string } {
    return { getPropertyValue: (name) => ` ${name} ` }
  }

  matchMedia(): ReturnType<Canvases['matchMedia']> {
    return {
      addEventListener: (_, call) => void this.colourChanges.add(call),
      removeEventListener: (_, call) => void this.colourChanges.delete(call),
    }
  }
}

function placeOf(): { place: Surface; width: (px: number) => void } {
  const place = { clientWidth: 390, id: '', style: { height: '' } }
  return { place, width: (px) => (place.clientWidth = px) }
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

t.test('a drawing from far away to its end', async (t) => {
  const browser = new FakeBrowser()
  const value = signal(1)
  const said: string[] = []
  let loads = 0
  const draw: Draw = ({ clientWidth }) => {
    said.push(`begins ${clientWidth}`)
    return { update: () => void said.push(`draws ${value.value}`), end: () => void said.push('ends') }
  }
  const ref = drawingRef(browser, () => {
    loads += 1
    return Promise.resolve(draw)
  })
  const { place, width } = placeOf()
  ref(place)
  await settled()
  t.same([loads, said], [0, []], 'its script is not loaded before it is near')
  browser.near[0]?.()
  browser.near[0]?.()
  await settled()
  t.same([loads, said.splice(0)], [1, ['begins 390', 'draws 1']])
  value.value = 2
  t.same(said.splice(0), ['draws 2'])
  for (const call of browser.resized) call()
  t.same(said.splice(0), [], 'its own height is no reason')
  width(1280)
  for (const call of browser.resized) call()
  for (const call of browser.colourChanges) call()
  t.same(said.splice(0), ['draws 2', 'draws 2'])
  browser.near[0]?.(false)
  t.same([said.splice(0), browser.resized.size], [['ends'], 0], 'far away it is not drawn')
  value.value = 5
  t.same(said, [])
  browser.near[0]?.()
  await settled()
  t.same([loads, said.splice(0)], [1, ['begins 1280', 'draws 5']], 'its script is loaded once')
  ref(null)
  value.value = 3
  t.same([said, browser.resized.size, browser.colourChanges.size], [['ends'], 0, 0])
})

t.test('rows are painted first: changes are drawn together a frame later', async (t) => {
  const frames: (() => void)[] = []
  const frame = (): void => frames.splice(0).forEach((call) => call())
  const browser = Object.assign(new FakeBrowser(), {
    requestAnimationFrame: (call: () => void) => void frames.push(call),
  })
  const value = signal(1)
  const said: string[] = []
  const ref = drawingRef(browser, () =>
    Promise.resolve(() => ({
      update: () => void said.push(`draws ${value.value}`),
      end: () => void said.push('ends'),
    })),
  )
  const { place } = placeOf()
  ref(place)
  browser.near[0]?.()
  await settled()
  t.same(said.splice(0), ['draws 1'], 'the first one at once')
  for (value.value = 2; value.value < 5; value.value += 1) frame()
  t.same(said.splice(0), ['draws 3'], 'the rows of 2 had a frame of their own, and 2 and 3 are drawn together')
  for (let i = 0; i < 4; i += 1) frame()
  t.same(said.splice(0), ['draws 5'])
  for (const call of browser.colourChanges) call()
  t.same(said.splice(0), ['draws 5'], 'other colours at once')
  value.value = 6
  frame()
  ref(null)
  frame()
  t.same([said, frames.length], [['ends'], 0], 'nothing is drawn after its end')
})

t.test('a place that goes while its script is loaded, and a script that does not come', async (t) => {
  const browser = new FakeBrowser()
  const { promise, resolve } = Promise.withResolvers<Draw>()
  const late = drawingRef(browser, () => promise)
  late(placeOf().place)
  browser.near[0]?.()
  late(null)
  resolve(() => t.fail('it has no place') as never)
  const missing = drawingRef(browser, () => Promise.reject(new Error('404')))
  missing(placeOf().place)
  browser.near[1]?.()
  await settled()
  missing(null)
  t.equal(browser.resized.size, 0)
})

t.test('colours are those of the style sheet', async (t) => {
  t.equal(colourOf(new FakeBrowser(), 'good'), '--good')
})

/**
 * The policy lets no style element and no style attribute in. cytoscape writes an element unless one with this id is
 * there; styles that a script sets one by one are allowed.
 */
t.test('the packages of the drawings keep the policy of the page', async (t) => {
  const textOf = (name: string): string => readFileSync(fileURLToPath(import.meta.resolve(name)), 'utf8')
  const cytoscape = textOf('cytoscape/dist/cytoscape.esm.mjs')
  const uplot = textOf('uplot/dist/uPlot.esm.js')
  t.equal([...cytoscape.matchAll(/createElement\(\s*['"]style['"]/g)].length, 1)
  t.match(cytoscape, /var stylesheetAlreadyExists = document\.getElementById\(stylesheetId\) != null;/)
  t.match(cytoscape, /stylesheetId = '__________cytoscape_stylesheet'/)
  const own = readFileSync(join(import.meta.dirname, '../../console/page/map-canvas.ts'), 'utf8')
  t.match(own, /'__________cytoscape_stylesheet'/)
  for (const text of [cytoscape, uplot]) {
    t.notMatch(text, /setAttribute\(\s*['"]style|\binsertRule\(|\beval\(|new Worker\(|innerHTML\s*=|\bfetch\(/)
  }
  t.notMatch(uplot, /createElement\(\s*['"]style/)
})
