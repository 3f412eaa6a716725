/**
 * Drawings on a canvas, each with a script of its own that is loaded when a person comes near it. The page itself does
 * not wait for them, and says the same in tables.
 */
import { effect } from '@preact/signals'

/** The part of an element of the document that drawings use. */
export interface Surface {
  readonly clientWidth: number
  id: string
  readonly style: { height: string }
}

/** What drawings use of a browser. */
export interface Canvases {
  readonly document: { readonly documentElement: object }
  getComputedStyle(element: object): { getPropertyValue(name: string): string }
  matchMedia(query: string): {
    addEventListener(name: 'change', call: () => void): void
    removeEventListener(name: 'change', call: () => void): void
  }
  /** Absent: a drawing is drawn at once. */
  requestAnimationFrame?(call: () => void): void
  readonly IntersectionObserver?: new (call: (seen: readonly Seen[]) => void, options: object) => Watcher
  readonly ResizeObserver?: new (call: () => void) => Watcher
}

interface Seen {
  readonly isIntersecting: boolean
}

interface Watcher {
  observe(element: object): void
  disconnect(): void
}

export interface Drawing {
  /** Draws what the signals say now, in the width that the place has now. */
  update(): void
  /** Takes the drawing away. */
  end(): void
}

export type Draw = (place: Surface) => Drawing

/** Given to an element: the element when it comes, null when it goes. */
export type SurfaceRef = (place: Surface | null) => void

/** How far from the screen a drawing may be when its script is loaded. */
const NEAR = { rootMargin: '200px' }

/**
 * Draws into an element as long as it is there and near the screen, and again whenever signals, colours or its width
 * change. What signals say is drawn a frame after the rows of the page: the effect of a drawing comes before the rows
 * are, and they would wait for it. Some drawings cost as much time when nothing changes, so that those far away are
 * taken away: the place keeps its height. A script that cannot be loaded leaves the place empty: the table beside it
 * stays.
 */
export function drawingRef(browser: Canvases, load: () => Promise<Draw>): SurfaceRef {
  let end: () => void = () => undefined
  return (place) => {
    end()
    end = place === null ? () => undefined : drawWhenNear(browser, place, load)
  }
}

function drawWhenNear(browser: Canvases, place: Surface, load: () => Promise<Draw>): () => void {
  let turn = 0
  let loading: Promise<Draw> | undefined
  let end: (() => void) | undefined
  const begin = async (): Promise<void> => {
    const mine = (turn += 1)
    const draw = await (loading ??= load())
    // The place may have gone meanwhile.
    if (mine === turn) end ??= keepDrawn(browser, place, draw)
  }
  const leave = (): void => {
    turn += 1
    end?.()
    end = undefined
  }
  const { IntersectionObserver } = browser
  if (IntersectionObserver === undefined) {
    void begin().catch(() => undefined)
    return leave
  }
  const watcher = new IntersectionObserver((seen) => {
    // The latest is the last.
    if (seen.at(-1)?.isIntersecting === true) void begin().catch(() => undefined)
    else leave()
  }, NEAR)
  watcher.observe(place)
  return () => {
    watcher.disconnect()
    leave()
  }
}

function keepDrawn(browser: Canvases, place: Surface, draw: Draw): () => void {
  const drawing = draw(place)
  let isOver = false
  let stop: () => void = () => undefined
  const again = (): void => {
    stop()
    if (isOver) return
    let isDrawn = false
    stop = effect(() => {
      const isFirst = !isDrawn
      isDrawn = true
      // An effect that reads nothing is not called again: changes until then are drawn together.
      if (isFirst || browser.requestAnimationFrame === undefined) drawing.update()
      else browser.requestAnimationFrame(() => browser.requestAnimationFrame?.(again))
    })
  }
  again()
  const colours = browser.matchMedia('(prefers-color-scheme: dark)')
  colours.addEventListener('change', again)
  let width = place.clientWidth
  // Its height follows from what is drawn.
  const onResize = (): void => {
    if (place.clientWidth === width) return
    width = place.clientWidth
    again()
  }
  const { ResizeObserver } = browser
  const watcher = ResizeObserver === undefined ? undefined : new ResizeObserver(onResize)
  watcher?.observe(place)
  return () => {
    isOver = true
    watcher?.disconnect()
    colours.removeEventListener('change', again)
    stop()
    drawing.end()
  }
}

/** The colours of the page, by the names of its style sheet. */
export function colourOf(browser: Canvases, name: string): string {
  return browser.getComputedStyle(browser.document.documentElement).getPropertyValue(`--${name}`).trim()
}
