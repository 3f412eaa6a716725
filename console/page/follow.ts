/** Follows the events of the server, and says when it does not answer. */
import type { Clock } from '../../reconcile/reconcile.ts'
import type { ConsoleState } from '../state/state.ts'
import { type PageModel, summaryOf, takeSections } from './model.ts'

/** What this page uses of a browser. The types of all that browsers have would count in every file of the project. */
export interface Browser {
  readonly document: {
    getElementById(id: string): { replaceChildren(): void } | null
    title: string
    /** `hidden` if a person cannot see the page, as in a tab behind another. */
    readonly visibilityState?: string
    addEventListener?(name: 'visibilitychange', call: () => void): void
  }
  readonly navigator: { readonly clipboard?: { writeText(text: string): Promise<void> } }
  readonly location: { assign(path: string): void }
  readonly EventSource: new (path: string) => Events
  fetch(path: string): Promise<{ readonly status: number; readonly body?: { cancel(): Promise<void> } | null }>
}

export interface Events {
  addEventListener(name: string, call: (event: { readonly data?: string }) => void): void
  /** 2: it does not try again. */
  readonly readyState: number
  close(): void
}

const CLOSED = 2
/** The server says every 5 s that it lives. */
const SILENT_MS = 12_000
/** After an answer other than a stream a browser gives up, and this page asks again. */
const AGAIN_MS = 3000
/** Screen readers are not interrupted more often. */
const SAY_EVERY_MS = 10_000

/**
 * Returns what has to be called once a second. A page that is not seen is not followed: the console reads calls while a
 * page is open, and a browser has few connections for all of its tabs.
 */
export function followServer(model: PageModel, browser: Browser, clock: Clock): () => void {
  // For people by the clock on the wall, and measured by the one that nobody sets.
  let heardAt = clock.now()
  let heardMs = clock.monotonic()
  let askedMs = -Infinity
  let saidMs = -Infinity
  let said = ''

  const noteSign = (): void => {
    heardAt = clock.now()
    heardMs = clock.monotonic()
  }
  const follow = (): Events => {
    const opened = new browser.EventSource('./api/events')
    const onSign = (): void => {
      noteSign()
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
  let events = follow()

  /** An event source does not say the status: a console that was started again does not know the cookie of before. */
  const again = async (): Promise<void> => {
    try {
      const { status, body } = await browser.fetch('./api/state')
      body?.cancel().catch(() => undefined)
      if (status === 401) {
        browser.location.assign('./')
        return
      }
    } catch {
      // It is away: the next event source says so too.
    }
    if (events.readyState === CLOSED) events = follow()
  }

  const isHidden = (): boolean => browser.document.visibilityState === 'hidden'
  const onVisibility = (): void => {
    events.close()
    if (isHidden()) {
      // The title stays in sight, and would say the health of before.
      browser.document.title = `${model.sections.about.value?.cluster ?? 'Sealane'}: not followed`
      return
    }
    noteSign()
    events = follow()
  }
  browser.document.addEventListener?.('visibilitychange', onVisibility)
  if (isHidden()) onVisibility()

  const announce = (nowMs: number): void => {
    const about = model.sections.about.value
    if (about === undefined) return
    const text = model.lostSince.value === undefined ? summaryOf(about) : 'the console does not answer'
    browser.document.title = `${about.health}: ${about.cluster ?? 'Sealane'}`
    if (text === said || nowMs - saidMs < SAY_EVERY_MS) return
    said = text
    saidMs = nowMs
    model.announcement.value = text
  }

  return () => {
    const [now, nowMs] = [clock.now(), clock.monotonic()]
    if (!model.paused.value) model.now.value = now
    if (isHidden()) return
    // While the machine slept, the clock of a browser that nobody sets may have stood still.
    if (Math.max(now - heardAt, nowMs - heardMs) > SILENT_MS) model.lostSince.value ??= heardAt
    if (events.readyState === CLOSED && nowMs - askedMs >= AGAIN_MS) {
      askedMs = nowMs
      void again()
    }
    announce(nowMs)
  }
}
