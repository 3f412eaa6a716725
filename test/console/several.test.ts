/** A page about several contexts: whose each row is, one that is away, and calls explained from one to another. */
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { h } from 'preact'
import { renderToString } from 'preact-render-to-string'
import t, { type Test } from 'tap'
import { type ConsoleFacts, type ConsoleSource, type ContextSource, runConsole } from '../../console/console.ts'
import { mapOf } from '../../console/page/map.ts'
import { Page, createModel, takeSections } from '../../console/page/page.ts'
import { type ConsoleState, type PathAnswer, planSeveral, withFailure } from '../../console/state/state.ts'
import { DOWN, changeLinks } from '../explain/broken-member.ts'
import { memberObjects, pathObjects } from '../explain/path/two-members.ts'
import { eventually } from '../support/eventually.ts'
import { NOW, SELF, factSet } from '../support/objects/member-facts.ts'
import { type FactsInit, consoleFacts, stateOf } from './support/console-facts.ts'

const COMMAND = 'sealane status --context'

function joined(b: ConsoleState | undefined, failing?: { since: string; why: string }): ConsoleState {
  return planSeveral([
    { context: 'a', state: stateOf(), command: `${COMMAND} a` },
    { context: 'b', state: b, failing, command: `${COMMAND} b` },
  ])
}

const CUT: FactsInit = {
  change: (at) => changeLinks(at, ({ cluster }) => cluster === 'paris', DOWN),
  input: { flags: '--context b' },
}

t.test('every row names its context, what is broken comes first, and each command is there', async (t) => {
  const { about, times: _, format: _format, ...sections } = joined(stateOf(CUT))
  for (const [name, { rows, commands }] of Object.entries(sections)) {
    t.ok(
      rows.every(({ context }) => context === 'a' || context === 'b'),
      name,
    )
    t.equal(commands?.length, 1, name)
  }
  const { problems, links, clusters, services } = sections
  t.same([...new Set(problems.rows.map(({ context }) => context))], ['b'])
  t.same([links.rows[0]?.context, links.rows[0]?.state, links.rows.length], ['b', 'down', 16])
  t.same([clusters.rows[0]?.context, clusters.rows[0]?.cluster], ['b', 'paris'])
  t.same(
    [services.command, ...(services.commands ?? [])],
    ['sealane show traffic --context c1', 'sealane show traffic --context b'],
  )
  t.match(about, {
    health: 'down',
    failing: undefined,
    // Both see paris and tokyo; one of them is reached by one alone.
    counts: { clusters: 2, clustersReached: 1, linksUp: 12, links: 16, services: stateOf().about.counts.services },
    contexts: [
      { context: 'a', cluster: 'milano', health: 'healthy', facts: NOW },
      { context: 'b', health: 'down', command: 'sealane status --context b' },
    ],
  })
})

t.test('one that is away: since when, with what it said last, and the others as ever', async (t) => {
  const failing = { since: '2026-11-25T11:58:00.000Z', why: 'no answer\u001b[2J' }
  const never = joined(undefined, failing)
  t.match(never.about, {
    health: 'degraded',
    contexts: [{ context: 'a' }, { context: 'b', failing: { since: failing.since } }],
  })
  t.equal(never.about.failing, undefined, 'the page has new facts')
  t.equal(never.links.rows.length, 8)
  const gone = joined(withFailure(stateOf(CUT), failing.since, failing.why))
  t.equal(gone.links.rows.length, 16)
  t.notMatch(JSON.stringify([never, gone]), /\\u001b/)
  const all = planSeveral([{ context: 'a', state: undefined, failing, command: COMMAND }])
  t.match(all.about, { health: 'down', failing: { since: failing.since, why: /^a: no answer/ }, counts: { links: 0 } })
})

t.test('bounds hold for all contexts together', async (t) => {
  const state = stateOf({ services: 1500 })
  const { services } = planSeveral(
    ['a', 'b'].map((context) => ({ context: `${context}${'\u202e'.repeat(300)}`, state, command: COMMAND })),
  )
  t.ok(services.rows.length <= 2000 && JSON.stringify(services.rows).length <= 1 << 20)
  t.equal(services.rows.length + services.more, 3000)
  t.ok(services.rows.every(({ context = '' }) => context.length <= 128 && !context.includes('\u202e')))
})

t.test('the page as a person reads it', async (t) => {
  const model = createModel(Date.parse(NOW), undefined)
  takeSections(model, joined(withFailure(stateOf(CUT), '2026-11-25T11:58:00.000Z', 'no answer within 5s')))
  const words = renderToString(h(Page, { model }))
    .replaceAll(/<[^>]+>/g, ' ')
    .replaceAll(/\s+/g, ' ')
  t.match(words, /Sealane: 2 contexts/)
  t.match(
    words,
    /b \(cluster milano\): ✕ does not answer since 2026-11-25 11:58:00 UTC, 2 min ago : no answer within 5s/,
  )
  t.match(words, /gw0 lane 0 b paris lane 0 ✕ down/, 'links')
  t.match(words, /shop\/web0 a ● usable/, 'services')
  t.match(words, /of context a b .*asked at context all others a b Explain/)
  const drawn = [...(model.history.value[0]?.links.keys() ?? [])]
  t.equal(drawn.length, 8)
  t.ok(
    drawn.every((name) => name.startsWith('a: gw')),
    'what a silent context said last is not of now',
  )
  const { nodes, rows } = mapOf(model)
  t.same(
    nodes.map(({ label }) => label.split('\n')[0]),
    ['gw0 a', 'gw1 a', 'gw0 b', 'gw1 b', 'paris', 'tokyo'],
  )
  t.equal(rows.length, 16)
  t.equal(nodes.find(({ label }) => label.startsWith('paris'))?.state, 'cut off', 'the worst that one says')
})

interface Answered {
  readonly code: number
  readonly text: string
}

async function ask(url: string, path: string): Promise<Answered> {
  const asked = request(new URL(path, url), { agent: false })
  asked.end()
  const [response] = (await once(asked, 'response')) as [IncomingMessage]
  return { code: response.statusCode ?? 0, text: (await response.toArray()).join('') }
}

interface Opened {
  readonly context: string
  /** Undefined: it cannot be opened. */
  source: ConsoleSource | undefined
}

function contextOf(opened: Opened): ContextSource {
  const { context } = opened
  return {
    ...{ context, flags: `--context ${context}`, toFlag: `--to-context ${context}`, everyMs: 5 },
    withSource: async (work) => {
      if (opened.source === undefined) throw new Error(`${context}: the API server does not answer`)
      await work(opened.source)
    },
  }
}

async function start(t: Test, contexts: readonly Opened[]): Promise<(path: string) => Promise<Answered>> {
  const stopping = new AbortController()
  const opened = Promise.withResolvers<string>()
  const ended = runConsole(
    {
      ...{ listen: { host: '127.0.0.1', port: 0 }, page: new Map(), limits: { explainEveryMs: 0 } },
      ...{ contexts: contexts.map(contextOf), onOpen: opened.resolve },
    },
    stopping.signal,
  )
  t.teardown(() => {
    stopping.abort()
    return ended
  })
  const url = await opened.promise
  return (path) => ask(url, path)
}

function sourceOf(id: typeof SELF | 'paris'): ConsoleSource {
  const facts: ConsoleFacts = { ...consoleFacts(), facts: factSet(memberObjects(id)), flags: `--context ${id}` }
  return {
    ...{ facts: () => Promise.resolve(facts), everyMs: 5 },
    pathSide: () => Promise.resolve({ facts: factSet(memberObjects(id)), objects: pathObjects(id) }),
  }
}

type Seen = Partial<ConsoleState>

t.test('one that hangs, and one that comes back, do not stop the others', async (t) => {
  const away: Opened = { context: 'paris', source: undefined }
  // Ends with the console alone.
  const hangs: ConsoleSource = {
    facts: (signal) => new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('ended')))),
    everyMs: 5,
  }
  const milano: Opened = { context: 'milano', source: sourceOf(SELF) }
  const asked = await start(t, [milano, away, { context: 'tokyo', source: hangs }])
  const seen = async (): Promise<Seen> => JSON.parse((await asked('/api/state')).text) as Seen
  const first = await eventually(async () => {
    const { about } = await seen()
    return about?.contexts?.[0]?.health !== undefined && about.contexts[1]?.failing !== undefined ? about : undefined
  })
  const failing = first.contexts?.[1]?.failing
  t.match(failing?.why, /the API server does not answer/)
  t.same([first.contexts?.[2]?.health, first.contexts?.[2]?.failing], [undefined, undefined], 'not read yet')
  const later = await eventually(async () => {
    const { times, about } = await seen()
    return times !== undefined ? about : undefined
  })
  t.equal(later.contexts?.[1]?.failing?.since, failing?.since, 'since the first attempt')
  away.source = sourceOf('paris')
  const back = await eventually(async () => {
    const { about } = await seen()
    return about?.contexts?.[1]?.health === undefined ? undefined : about
  })
  t.equal(back.contexts?.[1]?.failing, undefined)
  t.equal(back.contexts?.[1]?.cluster, 'paris')
})

t.test('a call from one context to the other: both are asked, and one that is silent is said', async (t) => {
  const far: Opened = { context: 'paris', source: sourceOf('paris') }
  const asked = await start(t, [{ context: 'milano', source: sourceOf(SELF) }, far])
  const explained = async (more: string): Promise<Answered & { readonly answer: PathAnswer }> => {
    const found = await asked(`/api/explain?from=shop%2Ffront-0&to=db.shop%3A5432${more}`)
    return { ...found, answer: JSON.parse(found.text) as PathAnswer }
  }
  const both = await eventually(async () => {
    const found = await explained('&fromContext=milano')
    return found.code === 200 && !/not open yet/.test(found.text) ? found.answer : undefined
  })
  t.equal(
    both.t === 'explained' && both.command,
    'sealane explain shop/front-0 db.shop:5432 --context milano --to-context paris',
  )
  const [alone, named] = [
    (await explained('&fromContext=milano&toContext=milano')).answer,
    (await explained('&fromContext=milano&toContext=paris')).answer,
  ]
  if (both.t !== 'explained' || alone.t !== 'explained' || named.t !== 'explained') throw new Error('not explained')
  t.same({ ...named, takenAt: '' }, { ...both, takenAt: '' })
  t.ok(both.steps.some(({ cluster }) => cluster === 'paris'))
  t.ok(both.notAsked.length < alone.notAsked.length, 'what paris alone knows was asked')
  for (const more of ['', '&fromContext=x', '&fromContext=milano&toContext=x']) {
    t.match((await explained(more)).answer, { t: 'wrong', hint: 'expected one of milano, paris' }, more)
  }
  t.equal((await explained(`&fromContext=${'x'.repeat(400)}`)).code, 400)
})

t.test('a path is explained while the context of the called end is away, and says so', async (t) => {
  const asked = await start(t, [
    { context: 'milano', source: sourceOf(SELF) },
    { context: 'paris', source: undefined },
  ])
  const found = await eventually(async () => {
    const { code, text } = await asked('/api/explain?from=shop%2Ffront-0&to=db.shop%3A5432&fromContext=milano')
    return code === 200 && text.includes('paris: paris: the API server') ? (JSON.parse(text) as PathAnswer) : undefined
  })
  t.match(found, { t: 'explained', notAsked: ['paris: paris: the API server does not answer'] })
  const { code } = await asked('/api/explain?from=w0&to=db.shop&fromContext=paris')
  t.equal(code, 502, 'the caller is where nothing answers')
})
