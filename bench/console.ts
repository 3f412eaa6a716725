/**
 * `npm run bench:console -- [--json] [--clusters 100] [--services 2000] [--updates 20] [--seconds 20] [--repeat 5]`: the
 * page of the console in Chromium, served by the console's own server, of a member that knows that many clusters and
 * services, while facts change that many times a second.
 *
 * Each change is a look two seconds later with calls of its own, so that the charts soon have all of their history; the
 * first half of them is followed with the map on the screen, the second with the charts.
 *
 * - `interactiveMs`: from the navigation until the rows are drawn and the page takes input: the median of the loads.
 *   The stream of events never ends, so that the network is never idle: what counts is what is drawn.
 * - `lagMs`: p99 of the time from a change at the server until its row is drawn; `lagP50Ms` the median. The server puts
 *   together what changes between two sendings, and a change counts as drawn with the next one that is.
 * - `heapMb`: the largest heap of the page's scripts while facts change, garbage included; `heapKeptMb` at the end,
 *   without garbage.
 * - `filterMs`: from a key in the filter until its rows are drawn. `stateKb`: what the page gets at first.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import type { Browser, BrowserContext, CDPSession, Page } from 'playwright-core'
import type { ConsoleFacts, FlowsFacts } from '../console/console.ts'
import { type ConsoleServer, serveConsolePage } from '../console/server/server.ts'
import { type ConsoleState, planLook } from '../console/state/state.ts'
import type { EndpointSlice } from '../model/objects.ts'
import { SystemClock } from '../reconcile/clock.ts'
import { launchChromium } from '../test/browser/support/chromium.ts'
import { builtPage } from '../test/browser/support/running-console.ts'
import { eventually } from '../test/support/eventually.ts'
import { consoleFacts } from '../test/console/support/console-facts.ts'
import type { Loose } from '../test/explain/broken-member.ts'
import { NOW, importedSlice } from '../test/support/objects/member-facts.ts'
import { importObject } from '../test/support/objects/service-objects.ts'
import { median, percentile, progress, round } from './figures.ts'

const TARGETS = { interactiveMs: 1000, lagMs: 250, heapMb: 150 }
/** What is still on its way when the last change was made gets this long. */
const LAST_MS = 3000
const EXPORTERS = 3
const CALLED = 200
const LOOK_MS = 2000

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    clusters: { type: 'string', default: '100' },
    services: { type: 'string', default: '2000' },
    updates: { type: 'string', default: '20' },
    seconds: { type: 'string', default: '20' },
    repeat: { type: 'string', default: '5' },
  },
})

/** Notes when the page has drawn its rows, and which change the first rows show, before any script of the page runs. */
const WATCH = `(() => {
  const seen = { drawnMs: undefined, changes: [], last: -1 }
  globalThis.sealaneSeen = seen
  const firstRow = (section) => document.querySelector('#' + section + ' tbody tr')?.textContent
  const numberIn = (text, pattern) => Number(pattern.exec(text ?? '')?.[1] ?? -1)
  const look = () => {
    const [links, services] = [firstRow('links'), firstRow('services')]
    if (links === undefined || services === undefined) return
    // A task after the next frame: what was drawn can be seen, and input would have its turn.
    if (seen.drawnMs === undefined) {
      seen.drawnMs = -1
      requestAnimationFrame(() => setTimeout(() => { seen.drawnMs = performance.now() }, 0))
    }
    const shown = Math.min(
      Math.round(numberIn(links, /(\\d+\\.\\d) ms/) * 10), numberIn(services, /(\\d+) of \\d+ ready/),
    )
    if (shown <= seen.last) return
    seen.last = shown
    requestAnimationFrame(() => seen.changes.push([shown, Date.now()]))
  }
  new MutationObserver(look).observe(document, { childList: true, characterData: true, subtree: true })
})()`

interface Seen {
  readonly drawnMs?: number
  readonly changes: readonly (readonly [change: number, atMs: number])[]
}

const FILTER = `new Promise((resolve) => {
  const field = document.querySelector('input[type=search]')
  field.value = 'service-1999'
  const began = performance.now()
  field.dispatchEvent(new Event('input', { bubbles: true }))
  requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - began), 0))
})`

async function main(): Promise<void> {
  const [clusters, services] = [wholeNumber('clusters'), wholeNumber('services')]
  const [updates, seconds, repeat] = [wholeNumber('updates'), wholeNumber('seconds'), wholeNumber('repeat')]
  const state = planLook(factsOf(clusters, services)).state
  const server = await serveConsolePage({
    ...{ listen: { host: '127.0.0.1', port: 0 }, page: builtPage(), clock: new SystemClock() },
  })
  const browser = await launchChromium()
  try {
    server.publish(state)
    const loads: number[] = []
    for (let i = 0; i < repeat; i += 1) loads.push(await load(browser, server.url))
    const live = await follow(browser, server, state, updates, seconds)
    const figures = {
      interactiveMs: round(median(loads), 0),
      interactiveMostMs: round(Math.max(...loads), 0),
      ...live,
      stateKb: Math.round(JSON.stringify(state).length / 1024),
      servicesShown: state.services.rows.length,
      ...{ clusters, services, updatesPerSecond: updates },
    }
    progress(
      figures,
      `${clusters} clusters, ${services} services, ${updates} updates a second: interactive after ` +
        `${figures.interactiveMs} ms (at most ${TARGETS.interactiveMs}), lag p99 ${figures.lagMs} ms (at most ` +
        `${TARGETS.lagMs}), heap ${figures.heapMb} MB (at most ${TARGETS.heapMb})\n${JSON.stringify(figures)}`,
    )
  } finally {
    await browser.close()
    await server.close()
  }
}

function wholeNumber(name: Exclude<keyof typeof values, 'json'>): number {
  const number = Number(values[name])
  if (!Number.isInteger(number) || number < 1)
    throw new Error(`--${name} ${values[name]}: expected a whole number from 1`)
  return number
}

/** A healthy member; each service is exported by three clusters. */
function factsOf(clusters: number, services: number): ConsoleFacts {
  const others = Array.from({ length: clusters - 1 }, (_, i) => `cluster-${i + 2}`)
  const names = Array.from({ length: services }, (_, i) => `service-${i}`)
  const exporters = (i: number): readonly string[] =>
    others.length === 0 ? [] : Array.from({ length: EXPORTERS }, (_, k) => others[(i + k * 7) % others.length] ?? '')
  const slices = names.flatMap((name, i) => exporters(i).map((cluster) => importedSlice(name, cluster)))
  const imports = names.map((name, i) => ({
    ...importObject({ name }, { type: 'ClusterSetIP', ips: [`245.0.${i >> 8}.${i & 0xff}`] }),
    status: { clusters: exporters(i).map((cluster) => ({ cluster })) },
  }))
  return consoleFacts({
    ...{ others, services: 0, gateways: 2, workers: 2 },
    change: (at) => {
      at('ServiceImport').push(...(imports as unknown as Loose[]))
      at('EndpointSlice').push(...(slices as Loose[]))
    },
    input: {
      shares: {
        t: 'known',
        at: NOW,
        value: { slices: slices as EndpointSlice[], policies: [], clusterPolicies: [], accessPolicies: [] },
      },
      flows: { t: 'known', at: NOW, value: flowsOf(names.slice(0, CALLED)) },
    },
  })
}

function flowsOf(services: readonly string[]): FlowsFacts {
  const calls = services.map((service, i) => ({
    ...{ name: `shop/${service}`, callsPerSecond: services.length - i, bytesPerSecond: 1000, p50Ms: 1, p99Ms: 2 },
    recent: { refused: 0, unanswered: 0 },
  }))
  const lines = services.map((service): FlowsFacts['lines'][number] => ({
    ...{ at: NOW, node: 'w0', outcome: 'answered', protocol: 'tcp', port: 8080, ms: 1 },
    from: { address: '10.42.1.5', namespace: 'shop', pod: 'front-0' },
    to: { address: '245.0.0.1', service: `shop/${service}` },
  }))
  return { lines, calls, sampled: 20, problems: [] }
}

/** The state after a change: the first link and the first service show its number, and others change too. */
function changed(state: ConsoleState, change: number): ConsoleState {
  const { links, services, calls, flows } = state
  const time = new Date(Date.parse(NOW) + change * LOOK_MS).toISOString()
  const at = change % services.rows.length
  return {
    ...state,
    times: { ...state.times, facts: time, flows: time },
    calls: { ...calls, rows: calls.rows.map((row) => ({ ...row, callsPerSecond: row.callsPerSecond + (change % 7) })) },
    flows: {
      ...flows,
      rows: flows.rows.map((row, i) => (i === change % flows.rows.length ? { ...row, at: time } : row)),
    },
    links: { ...links, rows: links.rows.map((row, i) => (i === 0 ? { ...row, rttMs: change / 10 } : row)) },
    services: {
      ...services,
      rows: services.rows.map((row, i) =>
        i === 0 || i === at
          ? { ...row, shares: row.shares.map((share) => ({ ...share, ready: change, total: change })) }
          : row,
      ),
    },
  }
}

async function openPage(browser: Browser, url: string): Promise<{ page: Page; context: BrowserContext }> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } })
  const page = await context.newPage()
  await page.addInitScript(WATCH)
  await page.goto(url, { waitUntil: 'commit' })
  // The page's policy lets in no function that is made of a text, as waitForFunction() does it.
  await eventually(async () => (await page.evaluate<number>('sealaneSeen.drawnMs ?? 0')) > 0, { intervalMs: 50 })
  return { page, context }
}

function seenBy(page: Page): Promise<Seen> {
  return page.evaluate<Seen>('sealaneSeen')
}

/** With nothing in a cache, in milliseconds. */
async function load(browser: Browser, url: string): Promise<number> {
  const { page, context } = await openPage(browser, url)
  const { drawnMs = NaN } = await seenBy(page)
  await context.close()
  return drawnMs
}

interface Live {
  readonly lagMs: number
  readonly lagP50Ms: number
  readonly heapMb: number
  readonly heapKeptMb: number
  readonly filterMs: number
}

async function follow(
  browser: Browser,
  server: ConsoleServer,
  state: ConsoleState,
  updates: number,
  seconds: number,
): Promise<Live> {
  const { page, context } = await openPage(browser, server.url)
  const debug = await context.newCDPSession(page)
  await debug.send('Performance.enable')
  await show(page, 'charts')
  await show(page, 'map')
  const published: number[] = []
  const heaps: number[] = []
  const started = performance.now()
  for (let change = 1; change <= updates * seconds; change += 1) {
    await sleep(Math.max(0, started + (change * 1000) / updates - performance.now()))
    const next = changed(state, change)
    published.push(Date.now())
    server.publish(next)
    if (change === Math.ceil((updates * seconds) / 2)) await show(page, 'charts')
    if (change % updates === 0) heaps.push(await heapBytes(debug))
  }
  const isLast = async (): Promise<boolean> => (await seenBy(page)).changes.at(-1)?.[0] === published.length
  await eventually(isLast, { deadlineMs: LAST_MS, say: 'the last change on the page' })
  const { changes } = await seenBy(page)
  const lags = published.map((atMs, i) => (changes.find(([shown]) => shown > i)?.[1] ?? Infinity) - atMs)
  const filterMs = await page.evaluate<number>(FILTER)
  await debug.send('HeapProfiler.collectGarbage')
  const keptBytes = await heapBytes(debug)
  await context.close()
  return {
    lagMs: round(percentile(lags, 0.99), 0),
    lagP50Ms: round(median(lags), 0),
    heapMb: round(Math.max(...heaps) / 2 ** 20, 1),
    heapKeptMb: round(keptBytes / 2 ** 20, 1),
    filterMs: round(filterMs, 0),
  }
}

/** Brings the drawings of a section onto the screen, and waits until there is one. */
async function show(page: Page, section: 'map' | 'charts'): Promise<void> {
  await page.evaluate(`document.querySelector('#${section} [role=img]').scrollIntoView()`)
  const canvases = `document.querySelectorAll('#${section} canvas').length`
  await eventually(async () => (await page.evaluate<number>(canvases)) > 0, { say: `the drawing of ${section}` })
}

async function heapBytes(debug: CDPSession): Promise<number> {
  const { metrics } = await debug.send('Performance.getMetrics')
  return metrics.find(({ name }) => name === 'JSHeapUsedSize')?.value ?? NaN
}

await main()
