/** The page without a browser: what a person reads, and that nothing of a member becomes HTML. */
import { h } from 'preact'
import { renderToString } from 'preact-render-to-string'
import t from 'tap'
import { type Browser, type Events, followServer } from '../../console/page/follow.ts'
import { toggleRegion } from '../../console/page/map.ts'
import { Page, agoText, createModel, matches, summaryOf, takeSections, togglePause } from '../../console/page/page.ts'
import type { ConsoleState, FlowsFacts } from '../../console/state/state.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { DOWN, changeLinks } from '../explain/broken-member.ts'
import { equalsGolden } from '../support/golden.ts'
import { NOW } from '../support/objects/member-facts.ts'
import { type Change, sharesFrom, stateOf } from './support/console-facts.ts'

const CALLS: FlowsFacts['calls'] = [
  { name: 'shop/web0', callsPerSecond: 1, bytesPerSecond: 1, recent: { refused: 0, unanswered: 0 } },
]
const AT = Date.parse(NOW) + 5000

function pageOf(
  state: Partial<ConsoleState>,
  change: (model: ReturnType<typeof createModel>) => void = () => undefined,
) {
  const model = createModel(AT, () => undefined)
  takeSections(model, state)
  change(model)
  return renderToString(h(Page, { model }))
}

/** A text as a person reads it. */
function wordsOf(html: string): string {
  const text = html
    .replaceAll(/<(\/?(p|li|tr|h\d|section|header|div|nav|table|ul)\b[^>]*)>/g, '\n')
    .replaceAll(/<\/?(th|td|button|code|time|label)\b[^>]*>/g, ' ')
  const plain = text
    .replaceAll(/<[^>]+>/g, '')
    .replaceAll('&lt;', '<')
    .replaceAll('&amp;', '&')
  return `${plain
    .split('\n')
    .map((line) => line.replaceAll(/\s+/g, ' ').trim())
    .filter((line) => line !== '')
    .join('\n')}\n`
}

const BROKEN = stateOf({
  change: (at) => changeLinks(at, ({ cluster }) => cluster === 'paris', DOWN),
  input: { shares: sharesFrom() },
})

t.test('before there are facts', async (t) => {
  t.match(wordsOf(pageOf({})), /Waiting for facts\./)
})

t.test('a dead link as a person reads it', async (t) => {
  equalsGolden(t, wordsOf(pageOf(BROKEN)), 'console/broken.txt')
})

t.test('what a member says stays a text', async (t) => {
  const evil = '<img src=x onerror=alert(1)>"\'</script>'
  const state = stateOf({
    change: (at) => {
      changeLinks(at, () => true, { ...DOWN, message: evil })
      Object.assign(at('Cluster')[1]!.spec, { labels: { a: evil } })
      for (const one of at('ServiceImport')) one.metadata.name = evil
    },
    input: { flags: `--context ${evil}` },
  })
  const html = pageOf(state)
  t.notMatch(html, /<img|<script|<\/script/i)
  t.match(html, /&lt;img src=x/)
})

t.test('reading aids', async (t) => {
  const html = pageOf(BROKEN)
  for (const id of [
    ...['problems', 'clusters', 'map', 'gateways', 'links', 'services', 'path', 'flows', 'denied', 'charts', 'events'],
  ]) {
    t.match(html, new RegExp(`<section id="${id}" aria-labelledby="${id}-title"`), id)
    t.match(html, new RegExp(`<h2 id="${id}-title">`), id)
    t.match(html, new RegExp(`<a href="#${id}">`), id)
  }
  t.match(html, /<a class="skip" href="#main">/)
  t.match(html, /aria-live="polite"/)
  t.notMatch(html, /style="|onclick|javascript:/i, 'the policy lets none in')
  const badges = [...html.matchAll(/<span class="badge [a-z]+"><span aria-hidden="true">[^<]*<\/span>([^<]*)</g)]
  t.ok(badges.length > 15 && badges.every(([, word = '']) => word.length > 1), 'each sign has a word')
  for (const [tag] of html.matchAll(/<button[^>]*>/g)) t.match(tag, /type="(button|submit)"/)
  for (const [tag] of html.matchAll(/<[^>]*role="img"[^>]*>/g)) t.match(tag, /aria-label="[^"]*The table below says/)
})

t.test('the filter, and long lists', async (t) => {
  const only = wordsOf(pageOf(BROKEN, (model) => (model.filter.value = ' PARIS ')))
  t.match(only, /Clusters \(1 of 3\)/)
  t.notMatch(only, /gw0 lane 0 tokyo/)
  t.match(wordsOf(pageOf(BROKEN, (model) => (model.filter.value = 'nothing'))), /Nothing matches the filter\./)
  const many = stateOf({ services: 300 })
  t.match(wordsOf(pageOf(many)), /Show all 300/)
  t.notMatch(wordsOf(pageOf(many, (model) => (model.open.value = new Set(['services'])))), /Show all 300/)
  t.ok(matches({ a: [{ b: 'Milano' }], c: 7 }, 'milano') && matches({ c: 7 }, '7'))
  t.notOk(matches({ secretKey: 'a' }, 'secret'), 'by what a row says, not by its fields')
})

t.test('a server that is away, facts that are old, a browser without clipboard', async (t) => {
  const lost = wordsOf(pageOf(BROKEN, (model) => (model.lostSince.value = AT)))
  t.match(lost, /the console does not answer since 2026-11-25 12:00:05 UTC: what you see is from before/)
  const failing = { ...BROKEN, about: { ...BROKEN.about, failing: { since: NOW, why: 'no API server' } } }
  t.match(wordsOf(pageOf(failing)), /no new facts since 2026-11-25 12:00:00 UTC, 5 s ago : no API server/)
  const model = createModel(AT, undefined)
  takeSections(model, BROKEN)
  t.notMatch(renderToString(h(Page, { model })), /Copy/)
  t.match(pageOf(BROKEN), /aria-label="Copy: sealane show connections --context c1"/)
})

t.test('a section that was not renewed, and one that was never read whole', async (t) => {
  const why = 'Gateway: no answer within 5s'
  const kept = wordsOf(pageOf({ ...BROKEN, links: { ...BROKEN.links, stale: { at: '2026-11-25T11:59:00Z', why } } }))
  t.match(kept, /2026-11-25 11:59:00 UTC, 65 s ago\s+\? not renewed: Gateway: no answer within 5s/)
  const never = wordsOf(pageOf({ ...BROKEN, links: { ...BROKEN.links, rows: [], stale: { why } } }))
  t.match(never, /Links \(0\)\nsealane [^\n]*\n\? incomplete: Gateway: no answer within 5s/)
  t.notMatch(never, /No link/i)
})

t.test('a console that was started again: the page logs in, or follows it', async (t) => {
  for (const [status, places, sources] of [
    [401, ['./'], 1],
    [200, [], 2],
    [undefined, [], 2],
  ] as const) {
    const clock = new FakeClock()
    const opened: { readyState: Events['readyState'] }[] = []
    const [asked, went]: [string[], string[]] = [[], []]
    class Source implements Events {
      readyState = 0
      constructor() {
        opened.push(this)
      }
      addEventListener(): void {
        // This server sends nothing.
      }
      close(): void {
        this.readyState = 2
      }
    }
    const browser: Browser = {
      ...{ document: { getElementById: () => null, title: '' }, navigator: {}, EventSource: Source },
      location: { assign: (path) => void went.push(path) },
      fetch: (path) => {
        asked.push(path)
        return status === undefined ? Promise.reject(new Error('away')) : Promise.resolve({ status })
      },
    }
    const tick = followServer(createModel(clock.now(), undefined), browser, clock)
    tick()
    t.same(asked, [], 'it is open')
    Object.assign(opened[0]!, { readyState: 2 })
    tick()
    tick()
    await clock.advance(0)
    t.same([asked, went, opened.length], [['./api/state'], places, sources], String(status))
  }
})

t.test('a page that is not seen is not followed, and is again once it is seen', async (t) => {
  const clock = new FakeClock()
  const opened: { readyState: number }[] = []
  class Source implements Events {
    readyState = 0
    constructor() {
      opened.push(this)
    }
    addEventListener(): void {
      // This server sends nothing.
    }
    close(): void {
      this.readyState = 2
    }
  }
  let change = (): void => undefined
  const asked: string[] = []
  const document = {
    ...{ getElementById: () => null, title: '', visibilityState: 'visible' },
    addEventListener: (_: string, call: () => void) => void (change = call),
  }
  const browser: Browser = {
    ...{ document, navigator: {}, EventSource: Source, location: { assign: () => undefined } },
    fetch: (path) => {
      asked.push(path)
      return Promise.resolve({ status: 200 })
    },
  }
  const model = createModel(clock.now(), undefined)
  takeSections(model, BROKEN)
  const tick = followServer(model, browser, clock)
  tick()
  t.match(document.title, /^degraded|^down/)
  document.visibilityState = 'hidden'
  change()
  t.equal(document.title, 'milano: not followed')
  await clock.advance(60_000)
  tick()
  t.same([opened.map(({ readyState }) => readyState), asked, model.lostSince.value], [[2], [], undefined])
  document.visibilityState = 'visible'
  change()
  tick()
  t.same([opened.map(({ readyState }) => readyState), asked, model.lostSince.value], [[2, 0], [], undefined])
  t.match(document.title, /^degraded|^down/)
})

t.test('a clock that is set back hides neither that the console is away nor that it is back', async (t) => {
  const clock = new FakeClock()
  const opened: Source[] = []
  class Source implements Events {
    readyState: number
    readonly calls = new Map<string, Parameters<Events['addEventListener']>[1]>()
    constructor() {
      // Each later one gets another answer than a stream at once.
      this.readyState = opened.length === 0 ? 0 : 2
      opened.push(this)
    }
    addEventListener(...[name, call]: Parameters<Events['addEventListener']>): void {
      this.calls.set(name, call)
    }
    close(): void {
      this.readyState = 2
    }
  }
  const browser: Browser = {
    ...{ document: { getElementById: () => null, title: '' }, navigator: {}, EventSource: Source },
    ...{ location: { assign: () => undefined }, fetch: () => Promise.resolve({ status: 503 }) },
  }
  const model = createModel(clock.now(), undefined)
  takeSections(model, BROKEN)
  const tick = followServer(model, browser, clock)
  const seconds = async (count: number): Promise<void> => {
    for (let i = 0; i < count; i += 1) {
      tick()
      await clock.advance(1000)
    }
  }
  await seconds(2)
  clock.setWallClock(clock.now() - 3_600_000)
  await seconds(15)
  t.not(model.lostSince.value, undefined, 'it has said nothing for 15 s')
  t.equal(model.announcement.value, 'the console does not answer')
  opened[0]!.close()
  await seconds(1)
  clock.setWallClock(clock.now() - 3_600_000)
  await seconds(4)
  t.equal(opened.length, 3, 'and the page asks again every 3 s')
  opened.at(-1)!.calls.get('beat')?.({})
  await seconds(12)
  t.equal(model.announcement.value, summaryOf(BROKEN.about))
})

t.test('a paused page stands still, and goes on with the newest', async (t) => {
  const well = stateOf()
  const model = createModel(AT, undefined)
  takeSections(model, well)
  const html = (): string => renderToString(h(Page, { model }))
  t.match(html(), /<button type="button" aria-pressed="false">Pause</)
  togglePause(model)
  const before = html()
  t.match(wordsOf(before), /Paused: nothing on this page changes\./)
  t.match(before, /aria-pressed="true"/)
  takeSections(model, BROKEN)
  takeSections(model, { problems: well.problems })
  t.equal(html(), before)
  togglePause(model)
  t.equal(model.sections.links.value, BROKEN.links)
  t.equal(model.sections.problems.value, well.problems, 'the newest of each section')
  t.same(model.aside.value, {})
})

t.test('clusters that the topology does not link are named', async (t) => {
  const notLinked = { reason: 'NotLinkedByTopology', clusters: ['<b>oslo</b>', 'rome'], more: 3 }
  const text = wordsOf(pageOf({ ...BROKEN, about: { ...BROKEN.about, notLinked } }))
  t.match(text, /Not linked with this cluster \(NotLinkedByTopology\): <b>oslo<\/b>, rome and 3 more\./)
  t.notMatch(wordsOf(pageOf(BROKEN)), /Not linked/)
})

t.test('services and charts say what is missing of calls', async (t) => {
  const value: FlowsFacts = { lines: [], calls: [], sampled: 20, problems: ['460 nodes were not asked'] }
  const flows = { t: 'known', at: NOW, value, why: 'no answer' } as const
  const html = pageOf(stateOf({ input: { flows } }))
  for (const id of ['services', 'flows']) {
    const section = html.slice(html.indexOf(`<section id="${id}"`)).split('</section>', 1)[0] ?? ''
    t.match(wordsOf(section), /460 nodes were not asked/, id)
    t.match(wordsOf(section), /not renewed: no answer/, id)
  }
  t.notMatch(wordsOf(pageOf(BROKEN)), /Calls: /)
  const charts = wordsOf(pageOf(stateOf({ input: { flows: { ...flows, value: { ...value, calls: CALLS } } } })))
  t.match(charts, /Calls a second to other clusters\. Calls: not renewed: no answer 460 nodes were not asked/)
})

t.test('drawings are beside tables that say the same', async (t) => {
  const html = pageOf(BROKEN)
  const section = html.slice(html.indexOf('<section id="map"'), html.indexOf('<section id="gateways"'))
  t.match(wordsOf(section), /gw0 lane 0 paris lane 0 ✕ down 0 of 1 - - kernel before/)
  t.match(section, /aria-label="Map: 2 gateways, 2 other clusters, 4 of 8 links up\. The table below says the same\."/)
  const charts = html.slice(html.indexOf('<section id="charts"'), html.indexOf('<section id="events"'))
  t.match(wordsOf(charts), /12:00:00 UTC - - 100\.0 % 100\.0 %/, 'the link that is down comes first')
  t.match(charts, /<option value="gw0 lane 0 to paris lane 0" selected/)
  const other = pageOf(BROKEN, (model) => (model.charted.value = { link: 'gone lane 0 to x lane 1' }))
  t.match(other, /<option value="gone lane 0 to x lane 1" selected/, 'what was chosen stays on offer')
})

t.test('the map follows the filter, with both ends of what matches', async (t) => {
  const rows = (filter: string): string => {
    const html = pageOf(BROKEN, (model) => (model.filter.value = filter))
    return wordsOf(html.slice(html.indexOf('<section id="map"'), html.indexOf('<section id="gateways"')))
  }
  t.match(rows('tokyo'), /gw0 lane 0 tokyo lane 0 ● up 1 of 1 12\.5 ms 0 % kernel before/)
  t.notMatch(rows('tokyo'), /paris/)
  t.match(rows('gw1'), /gw1 lane 1 paris lane 0/)
})

t.test('regions are opened by a button in the table', async (t) => {
  const others = Array.from({ length: 31 }, (_, i) => `m${i}`)
  const change: Change = (at) => {
    for (const [i, { spec }] of at('Cluster').entries()) {
      spec['properties'] = { 'region.sealane.io': i % 2 === 0 ? 'eu' : '<b>us' }
    }
  }
  const state = stateOf({ others, gateways: 1, services: 0, change })
  t.match(pageOf(state), /<button type="button" aria-expanded="false">Open region eu<\/button>/)
  const open = pageOf(state, (model) => {
    toggleRegion(model, 'eu')
    toggleRegion(model, '<b>us')
    toggleRegion(model, '<b>us')
  })
  t.match(open, /<button type="button" aria-expanded="true">Close region eu<\/button>/)
  t.match(open, /aria-expanded="false">Open region &lt;b>us</)
  const model = createModel(0, undefined)
  for (const region of ['a', 'b', 'c', 'd']) toggleRegion(model, region)
  t.same([...model.regions.value], ['b', 'c', 'd'], 'a drawing has a limit')
})

t.test('flows as a person reads them', async (t) => {
  const flows = {
    ...{ sampled: 20, problems: ['node w1: no answer'] },
    lines: [
      {
        ...{
          at: NOW,
          outcome: 'denied' as const,
          reason: 'access-not-exported',
          protocol: 'tcp',
          port: 22,
          node: 'w0',
        },
        ...{ from: { address: '244.1.0.9', cluster: 'paris' }, to: { address: '10.42.1.5', service: 'shop/<b>' } },
      },
    ],
    calls: [
      {
        ...{ name: 'shop/web0', callsPerSecond: 12.4, bytesPerSecond: 2500, p99Ms: 3 },
        recent: { refused: 2, unanswered: 1 },
      },
    ],
  }
  const html = pageOf(stateOf({ input: { flows: { t: 'known', at: NOW, value: flows } } }))
  const words = wordsOf(html)
  t.match(words, /access-not-exported ✕ denied 1 2026-11-25 12:00:00 UTC, 5 s ago paris 244\.1\.0\.9 10\.42\.1\.5 shop/)
  t.match(words, /shop\/web0 12 2 1 2\.5 kB\/s - 3\.0 ms/)
  t.match(words, /Samples: at most 20 calls a second of each node\. node w1: no answer/)
  t.match(words, /Shares Calls a second Errors Policy .*\nshop\/web0 .* 12 3 - Headless/s)
  t.notMatch(html, /<b>/)
})

t.test('words', async (t) => {
  const rows: readonly [number, string][] = [
    [0, '0 s ago'],
    [119, '119 s ago'],
    [120, '2 min ago'],
    [7200, '2 h ago'],
    [172_800, '2 days ago'],
  ]
  for (const [seconds, text] of rows) t.equal(agoText(seconds), text)
  t.equal(summaryOf(stateOf().about), 'healthy, 0 problems, 2 of 2 clusters reached, 8 of 8 links up')
  const model = createModel(AT, undefined)
  takeSections(model, JSON.parse('{"later":1,"__proto__":{"about":2}}') as Partial<ConsoleState>)
  t.equal(model.sections.about.value, undefined, 'sections of a later release are left out')
})
