/** Starts the page in a browser: follows the events of the server, the clock, and the person. */
import { h, render } from 'preact'
import { SystemClock } from '../../reconcile/reconcile.ts'
import type { ConsoleState } from '../state/state.ts'
import { Page, type PageModel, createModel, summaryOf, takeSections } from './page.ts'

/** What this page uses of a browser. The types of all that browsers have would count in every file of the project. */
interface Browser {
  readonly document: { getElementById(id: string): object | null; title: string }
  readonly navigator: { readonly clipboard?: { writeText(text: string): Promise<void> } }
  readonly EventSource: new (path: string) => Events
}

interface Events {
  addEventListener(name: string, call: (event: { readonly data?: string }) => void): void
  /** 2: it does not try again. */
  readonly readyState: number
  close(): void
}

const browser = globalThis as unknown as Browser
const clock = new SystemClock()
/** A page that never ends needs no signal. */
const { signal } = new AbortController()
const TICK_MS = 1000
/** The server says every 5 s that it lives. */
const SILENT_MS = 12_000
/** Screen readers are not interrupted more often. */
const SAY_EVERY_MS = 10_000

const { clipboard } = browser.navigator
const model: PageModel = createModel(clock.now(), clipboard === undefined ? undefined : copy)
let heardAt = clock.now()
let events = follow()
let saidAt = -Infinity
let said = ''

function copy(text: string): void {
  clipboard?.writeText(text).then(
    () => (model.copied.value = text),
    () => undefined,
  )
}

function follow(): Events {
  const opened = new browser.EventSource('/api/events')
  const onSign = (): void => {
    heardAt = clock.now()
    model.lostSince.value = undefined
  }
  opened.addEventListener('beat', onSign)
  opened.addEventListener('sections', ({ data = '{}' }) => {
    onSign()
    takeSections(model, JSON.parse(data) as Partial<ConsoleState>)
  })
  opened.addEventListener('error', () => (model.lostSince.value ??= heardAt))
  return opened
}

function tick(): void {
  const now = clock.now()
  model.now.value = now
  if (now - heardAt > SILENT_MS) {
    model.lostSince.value ??= heardAt
    // After an answer other than a stream a browser gives up.
    if (events.readyState === 2) events = follow()
  }
  const about = model.sections.about.value
  if (about === undefined) return
  const text = model.lostSince.value === undefined ? summaryOf(about) : 'the console does not answer'
  browser.document.title = `${about.health}: ${about.cluster ?? 'Sealane'}`
  if (text === said || now - saidAt < SAY_EVERY_MS) return
  said = text
  saidAt = now
  model.announcement.value = text
}

async function tickForever(): Promise<never> {
  for (;;) {
    tick()
    await clock.sleep(TICK_MS, signal)
  }
}

const place = browser.document.getElementById('page')
if (place !== null) render(h(Page, { model }), place)
void tickForever()
