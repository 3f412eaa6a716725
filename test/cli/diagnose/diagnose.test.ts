/** `sealane diagnose` of bundles, and of several members: what is printed, with which exit code. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { packTar } from '../../../cli/bundle/tar.ts'
import type { FactSet } from '../../../explain/facts/fact.ts'
import { mergeKubeconfigs, readKubeconfig, writeKubeconfig } from '../../kube/support/kubeconfig-file.ts'
import type { FakeApiServer } from '../../support/fake-api-server.ts'
import { NOW, factSet, healthyObjects } from '../../support/objects/member-facts.ts'
import { twoMembers } from '../../support/objects/two-members.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type CliResult, runCli } from '../run-cli.ts'
import { clusterWith } from '../status/cluster-with.ts'
import { cutOff, siteWith } from '../status/site-with.ts'

interface Document {
  readonly health?: string
  readonly between?: readonly Problem[]
  readonly members?: readonly { readonly cluster: string; readonly health: string }[]
  readonly problems?: readonly Problem[]
  readonly notLookedAt?: readonly { readonly target: string; readonly why: string }[]
}
interface Problem {
  readonly reason: string
}

async function diagnose(...args: readonly string[]): Promise<CliResult & { readonly document: Document }> {
  const result = await runCli(['diagnose', ...args, '-o', 'json'])
  return { ...result, document: (result.stdout === '' ? {} : JSON.parse(result.stdout)) as Document }
}

const reasons = (problems: readonly Problem[] = []): string[] => problems.map(({ reason }) => reason)

function bundle(folder: string, name: string, facts: FactSet): string {
  const file = join(folder, name)
  const content = Buffer.from(JSON.stringify(facts))
  writeFileSync(file, gzipSync(packTar([{ name: 'sealane-gather/facts.json', content }], 0)))
  return file
}

t.test('a bundle has the closer look in it, and needs no cluster', async (t) => {
  const folder = temporaryFolder(t)
  const set = factSet(healthyObjects())
  const off = { node: 'gw0', devices: [], sysctls: { 'net/ipv4/ip_forward': '0' }, disks: [] }
  const probe = { t: 'probe', kind: 'host', source: 'the kernel', at: NOW, items: [off] } as const
  const file = bundle(folder, 'off.tar.gz', { ...set, facts: [...set.facts, probe] })
  for (const time of ['first', 'second']) {
    const { code, document, stderr } = await diagnose('--bundle', file)
    t.same([code, stderr, reasons(document.problems)], [2, '', ['ForwardingOff']], time)
  }
  const well = bundle(folder, 'well.tar.gz', set)
  t.equal((await diagnose('--bundle', well)).code, 0)
  t.same(reasons((await diagnose('lanes', '--bundle', file)).document.problems), [], 'of an area alone')
  const text = await runCli(['diagnose', '--bundle', file])
  t.match(text.stdout, /^milano in clusterset demo: down\n(.*\n)*down: ForwardingOff, Node gw0\n/)
})

t.test('what sealane gather writes on a site, sealane diagnose reads', async (t) => {
  const site = await siteWith(t, cutOff)
  const file = site.path('bundle.tar.gz')
  await runCli(['gather', '--site', site.file, '--ask', '127.0.0.1:1', '-o', file])
  const { code, document } = await diagnose('--bundle', file)
  t.equal(code, 2)
  t.equal(reasons(document.problems)[0], 'ClusterCutOff')
})

t.test('two bundles are compared', async (t) => {
  const folder = temporaryFolder(t)
  const [a, b] = twoMembers(({ paris }) => {
    paris.ServiceImport = []
  })
  const files = ['--bundle', bundle(folder, 'a.tar.gz', a), '--bundle', bundle(folder, 'b.tar.gz', b)]
  const { code, document } = await diagnose(...files)
  t.same([code, document.health, reasons(document.between)], [0, 'healthy', ['ImportsMissing']])
  t.same(
    document.members?.map(({ cluster }) => cluster),
    ['milano', 'paris'],
  )
  const { stdout } = await runCli(['diagnose', ...files])
  t.match(stdout, /^2 members examined: healthy\n\nbetween them:\nnotice: ImportsMissing, /)
  t.match(
    stdout,
    /\nmilano in clusterset demo: healthy\nno problems\n\nparis in clusterset demo: healthy\nno problems\n$/,
  )
})

t.test('sites are compared; one that cannot be looked at is named', async (t) => {
  const a = await siteWith(t)
  const b = await siteWith(t)
  const { code, document } = await diagnose('--site', a.file, '--site', b.file)
  t.same([code, reasons(document.between), document.notLookedAt], [0, ['MemberTwice'], []])
  const gone = await diagnose('--site', a.file, '--site', '/nowhere/site.yaml')
  t.equal(gone.code, 3, 'of one of them nobody knows')
  t.match(gone.document.notLookedAt, [{ target: '/nowhere/site.yaml', why: /no such file/ }])
  const none = await diagnose('--site', '/nowhere/a.yaml', '--site', '/nowhere/b.yaml')
  t.equal(none.code, 3)
  t.match(none.stderr, /no member could be examined: \/nowhere\/a\.yaml: .*no such file.*; \/nowhere\/b\.yaml: /)
})

/** One kubeconfig for all of them. */
function kubeconfigOf(t: Test, servers: Readonly<Record<string, Pick<FakeApiServer, 'kubeconfig'>>>): string {
  const files = Object.entries(servers).map(([context, { kubeconfig }]) => ({ context, path: kubeconfig }))
  return mergeKubeconfigs(join(temporaryFolder(t), 'config'), files)
}

t.test('all contexts of a kubeconfig', async (t) => {
  const [milano, paris] = twoMembers().map(({ facts }) =>
    Object.fromEntries(facts.flatMap((fact) => (fact.t === 'objects' ? [[fact.kind, [...fact.items]]] : []))),
  )
  const c1 = await clusterWith(t, { ...healthyObjects({ others: ['paris'] }), ...milano })
  const c2 = await clusterWith(t, { ...healthyObjects({ others: ['paris'] }), ...paris })
  const config = kubeconfigOf(t, { c1, c2 })
  const { code, document, stderr } = await diagnose('--all-contexts', '--kubeconfig', config)
  t.same([reasons(document.between), document.notLookedAt], [[], []], stderr)
  t.same(
    document.members?.map(({ cluster }) => cluster),
    ['milano', 'paris'],
  )
  t.equal(code, 0)
  for (const server of [c1, c2])
    t.same(
      server.requests.filter((line) => !line.startsWith('GET ')),
      [],
      'it only reads',
    )
  const other = await clusterWith(t, {})
  for (const kind of ['gateways', 'clusters']) other.missing.add(`sealane.io/v1alpha1/${kind}`)
  const { ca } = readKubeconfig(c1.kubeconfig)
  const silent = { cluster: 'gone', user: 'x', url: 'https://127.0.0.1:1', ca, credentials: { token: 'x' } }
  const gone = { kubeconfig: writeKubeconfig(join(temporaryFolder(t), 'config'), silent) }
  const some = kubeconfigOf(t, { c1, other, gone })
  const partly = await diagnose('--all-contexts', '--kubeconfig', some)
  t.equal(partly.code, 3)
  t.match(partly.stderr, /^context "other": Sealane is not installed$/m)
  t.match(partly.document.notLookedAt, [{ target: 'context "gone"' }])
  t.equal(partly.document.members?.length, 1)
})

t.test('what cannot be had together', async (t) => {
  const rows: readonly (readonly [args: readonly string[], said: RegExp])[] = [
    [['--all-contexts', '--context', 'c1'], /'--all-contexts' cannot be used with option '--context <name>'/],
    [['--all-contexts', '--site', 'a.yaml'], /'--all-contexts' cannot be used with option '--site <file>'/],
    [['--bundle', 'a', '--site', 'b'], /'--bundle <file>' cannot be used with option '--site <file>'/],
    [['--bundle', 'a', '--ask', '127.0.0.1:1'], /'--bundle <file>' cannot be used with option '--ask <host:port>'/],
    [['dns', '--site', 'a', '--site', 'b'], /area: expected none when several members are compared/],
    [['--ask', '127.0.0.1:1', '--site', 'a', '--site', 'b'], /--ask: expected one --site/],
    [['--all-contexts', '--kubeconfig', '/nowhere'], /\/nowhere/],
    [['--bundle', '/nowhere/x'], /--bundle \/nowhere\/x: /],
    [['--bundle', '/nowhere/x', '--bundle', '/nowhere/y'], /--bundle \/nowhere\/x: /],
  ]
  for (const [args, said] of rows) {
    const { code, stderr, stdout } = await runCli(['diagnose', ...args])
    t.same([code, stdout], [3, ''], args.join(' '))
    t.match(stderr, said, args.join(' '))
  }
})
