/** `sealane console`: from facts to a page that answers, its browser, and wrong usage. */
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { readPageFiles } from '../../console/server/server.ts'
import { openBrowser } from '../../cli/commands/console.ts'
import {
  type MemberSource,
  bundleSource,
  contextSources,
  flowsReader,
  withKubeSource,
} from '../../cli/status/console/console-source.ts'
import { planLook } from '../../console/state/state.ts'
import { explainPath, parseFrom, parseTo } from '../../explain/path/path.ts'
import { ClusterApiError } from '../../kubeapi/cluster-api.ts'
import { CONNECT_TIMES_MS, NO_FLOWS } from '../../model/flow-counts.ts'
import { eventually } from '../support/eventually.ts'
import { JumpingClock } from '../support/jumping-clock.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { factSet, healthyObjects } from '../support/objects/member-facts.ts'
import type { OpenedMember } from '../../cli/status/open-member.ts'
import { runCli } from './run-cli.ts'
import { clusterWith, podsThatLooked } from './status/cluster-with.ts'

t.test('wrong usage', async (t) => {
  const folder = temporaryFolder(t)
  const short = join(folder, 'token')
  writeFileSync(short, 'short\n')
  const config = join(folder, 'config')
  writeFileSync(config, 'contexts: [{ name: a, context: { cluster: c, user: u } }]\n')
  const many = Array.from({ length: 17 }, (_, i) => ['--context', `c${i}`]).flat()
  const rows: readonly [words: string[], code: number, said: RegExp][] = [
    [['--listen', '9480'], 2, /--listen "9480": expected host:port/],
    [['--tls-cert', 'a.pem'], 2, /--tls-cert and --tls-key: expected both/],
    [['--token-file', short], 1, /expected one word of at least 16 characters/],
    [['--token-file', join(folder, 'none')], 1, /--token-file .*: ENOENT/],
    [['--bundle', 'a', '--context', 'b'], 2, /cannot be used with/],
    [['--context', 'a', '--context', 'nowhere', '--kubeconfig', config], 2, /--context nowhere: .* no such context/],
    [['--kubeconfig', config, ...many], 2, /--context: 17 contexts: expected at most 16/],
    [['--clusterset', 'x'], 2, /--clusterset: expected --broker as well/],
    [['--broker', folder, '--context', 'a'], 2, /--broker ".*": expected no directory for a broker in a cluster/],
    [['--broker', '--context', 'a', '--context', 'b'], 2, /--broker: expected at most one --context/],
    [['--broker', '--bundle', 'a'], 2, /cannot be used with/],
    [['--interval', '10ms'], 2, /expected 1s to 1h/],
  ]
  for (const [words, code, said] of rows) {
    const result = await runCli(['console', '--no-browser', ...words])
    t.equal(result.code, code, words.join(' '))
    t.match(result.stderr, said)
  }
})

t.test('a file of facts', async (t) => {
  const { facts, everyMs } = bundleSource(factSet(healthyObjects()), '--bundle f')
  const { about, services, denied } = planLook(await facts(new AbortController().signal)).state
  t.same([about.live, about.health, everyMs], [false, 'healthy', undefined])
  t.match(services.note, /has no rules of policies/)
  t.match(denied.note, /has no refused packets/)
})

t.test('the files of the page', async (t) => {
  const folder = temporaryFolder(t)
  t.throws(() => readPageFiles([folder]), /the page of the console is not built/)
  mkdirSync(join(folder, 'assets'))
  for (const name of ['index.html', 'assets/page.js', 'assets/page.js.map']) writeFileSync(join(folder, name), name)
  t.same([...readPageFiles([folder]).keys()].sort(), ['/', '/assets/page.js'])
})

/** Runs `work` with the source of a console of this cluster. */
async function looking(
  { kubeconfig }: { readonly kubeconfig: string },
  clock: JumpingClock,
  work: (look: (isSeen?: boolean) => ReturnType<MemberSource['facts']>, source: MemberSource) => Promise<void>,
  timeoutMs = 400,
): Promise<void> {
  const { signal } = new AbortController()
  const output = { answer: () => undefined, remark: () => undefined }
  const init = { flags: '--context c1', pages: [], timeoutMs, everyMs: 2000, clock }
  await withKubeSource({ kubeconfig }, init, { signal, output, env: {}, terminal: null }, (source) =>
    work((isSeen) => source.facts(signal, isSeen), source),
  )
}

t.test('an API server that goes away after the first look: the look fails, and the last state stays', async (t) => {
  const server = await clusterWith(t)
  await looking(server, new JumpingClock(), async (look) => {
    const first = planLook(await look())
    t.equal(first.state.clusters.rows.length, 3)
    server.fault = () => 'hang'
    await t.rejects(look(), /API server of .*: no answer within 400ms/)
    server.fault = podsThatLooked()
    const { state } = planLook(await look(), first)
    t.same([...new Set(state.links.rows.map(({ since }) => since))], [undefined], 'no link has changed')
  })
})

t.test('shares stay with their time while slices cannot be listed, and the next look asks again', async (t) => {
  const server = await clusterWith(t)
  const clock = new JumpingClock()
  await looking(server, clock, async (look) => {
    server.fault = podsThatLooked()
    const { shares } = await look()
    t.equal(shares.t, 'known')
    clock.jump(31_000)
    const forbidden = { status: 403, body: { kind: 'Status', code: 403, reason: 'Forbidden', message: 'no' } }
    server.fault = (request) => (request.path.endsWith('/endpointslices') ? forbidden : podsThatLooked()(request))
    t.same((await look()).shares, shares)
    server.fault = podsThatLooked()
    const next = (await look()).shares
    t.ok(next.t === 'known' && shares.t === 'known' && next.at > shares.at, 'renewed at once')
  })
})

t.test('calls of a cluster are read while a page is open, beside the looks, and every 10 s', async (t) => {
  const server = await clusterWith(t)
  const clock = new JumpingClock()
  const asked = (): number => server.requests.filter((line) => /\/pods\?.*routeagent/.test(line)).length
  await looking(server, clock, async (look) => {
    server.fault = podsThatLooked()
    const { flows, denied } = await look()
    t.match([flows, denied], [{ t: 'none', why: 'Calls are read while a page is open.' }, { t: 'none' }])
    const before = asked()
    const why = await eventually(async () => {
      const { flows } = await look(true)
      return flows?.t === 'none' && !/a page is open/.test(flows.why) ? flows.why : undefined
    })
    t.match(why, /^node gw0: /, 'these pods run no command')
    const after = asked()
    t.equal(after, before + 1)
    await look(true)
    clock.jump(11_000)
    await look(true)
    await eventually(() => (asked() === after + 1 ? true : undefined))
  })
})

const NO_TIMES = new Array<number>(CONNECT_TIMES_MS.length + 1).fill(0)
const PAGE = JSON.stringify({
  ...{ since: '2026-11-25T11:00:00Z', recentSeconds: 60, sampled: 20, rows: [], lines: [] },
  rest: { way: 'out', total: NO_FLOWS, recent: NO_FLOWS, times: NO_TIMES },
})

t.test('calls that are not renewed say why, and end; a refusal is not repeated soon', async (t) => {
  const clock = new JumpingClock()
  let answer: () => Promise<object> = () => Promise.resolve({ status: 0, stdout: PAGE, stderr: '' })
  let runs = 0
  const pod = { metadata: { name: 'ra' }, spec: { nodeName: 'w0' }, status: { phase: 'Running' } }
  const admin = {
    title: 'c1',
    list: () => Promise.resolve([pod]),
    exec: () => {
      runs += 1
      return answer()
    },
  }
  const opened = { t: 'kube', admin } as unknown as OpenedMember
  const look = flowsReader(opened, clock, new AbortController().signal)
  const seen = (t: 'known' | 'none', why?: RegExp) =>
    eventually(() => {
      const found = look(true)
      const said = found.why
      return found.t === t && (why === undefined ? said === undefined : why.test(said ?? '')) ? found : undefined
    })
  const first = await seen('known')
  answer = () => Promise.reject(new Error('no answer'))
  clock.jump(11_000)
  t.match(await seen('known', /w0: no answer/), { at: first.t === 'known' ? first.at : '' })
  clock.jump(50_000)
  t.match(await seen('none', /w0: no answer/), { t: 'none' }, 'a minute old')
  answer = () => Promise.reject(new ClusterApiError('Forbidden', 'cannot create pods/exec'))
  clock.jump(11_000)
  await seen('none', /cannot create pods\/exec/)
  const before = runs
  clock.jump(290_000)
  look(true)
  t.equal(runs, before)
  clock.jump(11_000)
  look(true)
  await eventually(() => (runs === before + 1 ? true : undefined))
})

t.test('the facts of a path, as sealane explain gathers them', async (t) => {
  const server = await clusterWith(t)
  await looking(server, new JumpingClock(), async (_, { pathSide }) => {
    server.fault = podsThatLooked()
    const ends = { from: parseFrom('w0'), to: parseTo('web0.shop') }
    const here = await pathSide(ends, new AbortController().signal)
    t.match(explainPath(ends, { here }), { format: 1, from: 'w0', to: 'web0.shop' })
    t.same(
      server.requests.filter((line) => !line.startsWith('GET ')),
      [],
      'it only reads',
    )
  })
  const { pathSide } = bundleSource(factSet(healthyObjects()), '--bundle f')
  const ends = { from: parseFrom('w0'), to: parseTo('web0.shop') }
  const here = await pathSide(ends, new AbortController().signal)
  t.match(explainPath(ends, { here }), { format: 1 })
})

t.test('a path for which its caller waits no more: all its questions end', async (t) => {
  const server = await clusterWith(t)
  const work = async (_: unknown, { pathSide }: MemberSource): Promise<void> => {
    server.fault = () => 'hang'
    const gone = new AbortController()
    const asked = pathSide({ from: parseFrom('w0'), to: parseTo('web0.shop') }, gone.signal)
    asked.catch(() => undefined)
    await eventually(() => (server.hanging > 5 ? true : undefined))
    gone.abort()
    await t.rejects(asked)
    await eventually(() => (server.hanging === 0 ? true : undefined))
  }
  await looking(server, new JumpingClock(), work, 60_000)
})

t.test('several contexts: each is opened on its own, and again after it failed', async (t) => {
  const [milano, away] = [await clusterWith(t), await clusterWith(t)]
  away.fault = () => 'hang'
  const { signal } = new AbortController()
  const output = { answer: () => undefined, remark: () => undefined }
  const init = { pages: [], timeoutMs: 200, everyMs: 1000, clock: new JumpingClock() }
  const targets = [milano, away].map(({ kubeconfig }) => ({ kubeconfig, context: 'fake' }))
  const [one, other] = contextSources(targets, init, { signal, output, env: {}, terminal: null })
  t.match(one, {
    context: 'fake',
    flags: /^--kubeconfig .* --context fake$/,
    toFlag: '--to-context fake',
    everyMs: 1000,
  })
  const clustersOf = async (source: typeof one): Promise<number> => {
    let found = 0
    await source?.withSource(async ({ facts }) => {
      found = planLook(await facts(signal)).state.clusters.rows.length
    }, signal)
    return found
  }
  await t.rejects(clustersOf(other), /no answer within 200ms/)
  t.equal(await clustersOf(one), 3)
  away.fault = podsThatLooked()
  t.equal(await clustersOf(other), 3)
})

/** Opens a browser that is this script. `remarks` grows. */
function opened(t: Test, script: string | undefined): { folder: string; remarks: string[]; clock: JumpingClock } {
  const folder = temporaryFolder(t)
  const program = join(folder, 'xdg-open')
  if (script !== undefined) {
    writeFileSync(program, `#!/bin/sh\ncd ${folder}\ncat /proc/$$/stat > stat.new\nmv stat.new stat\n${script}\n`)
    chmodSync(program, 0o755)
  }
  const remarks: string[] = []
  const output = { answer: () => undefined, remark: (text: string) => void remarks.push(text) }
  const env = { DISPLAY: ':0', PATH: script === undefined ? folder : `${folder}:/usr/bin:/bin` }
  const clock = new JumpingClock()
  openBrowser('http://127.0.0.1:1/', { signal: new AbortController().signal, output, env, terminal: null }, clock)
  return { folder, remarks, clock }
}

/** The process and its group, by proc_pid_stat(5). */
function groupOf(stat: string): readonly [pid: string, group: string] {
  const [, , group = ''] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return [stat.slice(0, stat.indexOf(' ')), group]
}

t.test('the browser outlives the console, and only one that does not open is a remark', async (t) => {
  const none = opened(t, undefined)
  const failed = opened(t, 'exit 3')
  for (const { remarks } of [none, failed]) {
    await eventually(() => (remarks.length > 0 ? true : undefined))
    t.same(remarks, ['no browser could be opened: open the address\n'])
  }
  const { folder, remarks, clock } = opened(t, 'while [ ! -e closed ]; do sleep 0.02; done\nexit 3')
  const [pid, group] = await eventually(() => {
    const file = join(folder, 'stat')
    return existsSync(file) ? groupOf(readFileSync(file, 'utf8')) : undefined
  })
  t.equal(group, pid, 'Ctrl-C does not reach a group of its own')
  t.not(group, groupOf(readFileSync('/proc/self/stat', 'utf8'))[1])
  clock.jump(10_000)
  writeFileSync(join(folder, 'closed'), '')
  await eventually(() => (existsSync(`/proc/${pid}`) ? undefined : true))
  t.same(remarks, [], 'a person closed it')
})
