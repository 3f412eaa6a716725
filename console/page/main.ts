/** Starts the page in a browser. */
import { h, render } from 'preact'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { type Canvases, drawingRef } from './drawing.ts'
import { type Browser, followServer } from './follow.ts'
import { createModel } from './model.ts'
import { Page } from './page.ts'
import { type Asking, askServer } from './path.ts'

const browser = globalThis as unknown as Browser & Canvases & Asking
const clock = new SystemClock()
/** A page that never ends needs no signal. */
const { signal } = new AbortController()
const TICK_MS = 1000

const { clipboard } = browser.navigator
const model = createModel(clock.now(), clipboard === undefined ? undefined : copy, (all) => ({
  drawings: {
    map: drawingRef(browser, async () => (await import('./map-canvas.ts')).mapDrawing(all, browser)),
    link: drawingRef(browser, async () => (await import('./chart-canvas.ts')).linkDrawing(all, browser)),
    calls: drawingRef(browser, async () => (await import('./chart-canvas.ts')).callsDrawing(all, browser)),
  },
  explain: (ends, asked) => askServer(browser, clock, ends, asked),
}))
const tick = followServer(model, browser, clock)

function copy(text: string): void {
  clipboard?.writeText(text).then(
    () => (model.copied.value = text),
    () => undefined,
  )
}

async function tickForever(): Promise<never> {
  for (;;) {
    tick()
    await clock.sleep(TICK_MS, signal)
  }
}

const place = browser.document.getElementById('page')
if (place !== null) {
  // What index.html says until now would stay beside the page.
  place.replaceChildren()
  render(h(Page, { model }), place)
}
void tickForever()
