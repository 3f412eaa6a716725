/** A second join of a site: it says what the site is, keeps the token, repairs, and shows differences. */
import { rmSync } from 'node:fs'
import t, { type Test } from 'tap'
import { LoopbackBroker } from '../loopback-broker.ts'
import { type CliResult, runCli } from '../run-cli.ts'
import { SiteFolder } from '../site-folder.ts'

interface Member {
  readonly broker: LoopbackBroker
  readonly site: SiteFolder
  /** The token of the first join. */
  readonly used: string
  readonly join: (...more: string[]) => Promise<CliResult>
}

async function member(t: Test): Promise<Member> {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t)
  const used = await broker.token()
  const join = (...more: string[]): Promise<CliResult> => runCli(['join', '--site', site.file, ...more])
  t.equal((await join('--token', used)).code, 0)
  return { broker, site, used, join }
}

const LOCAL = '    - local: {}\n'
const ALREADY = 'this site is already a member of demo as milano: nothing to repair\n'

t.test('with a token, whichever: exit code 0 as on clusters, and the token can still be used', async (t) => {
  const { broker, site, used, join } = await member(t)
  const key = site.read('state/identity/cluster.key')
  const fresh = await broker.token()
  for (const token of [used, fresh, await broker.token({ cluster: 'roma' })]) {
    t.same(await join('--token', token), { code: 0, stdout: ALREADY, stderr: 'the token is not used\n' })
  }
  t.equal(site.read('state/identity/cluster.key'), key, 'its identity is untouched')
  t.equal(site.has('state/identity/joining.key'), false)
  const other = new SiteFolder(t, 'paris')
  t.equal((await runCli(['join', '--site', other.file, '--token', fresh])).code, 0, 'the token joins another site')
})

t.test('without a token, also while the broker is away', async (t) => {
  const { broker, join } = await member(t)
  t.same(await join(), { code: 0, stdout: ALREADY, stderr: '' })
  const token = await broker.token()
  await broker.stop()
  t.same(await join(), { code: 0, stdout: ALREADY, stderr: '' })
  t.same(await join('--token', token), { code: 0, stdout: ALREADY, stderr: 'the token is not used\n' })
})

t.test('what is missing is restored, and differences are shown', async (t) => {
  const { site, join } = await member(t)
  rmSync(site.path('state/objects/Membership'), { recursive: true })
  site.write('site.yaml', site.read('site.yaml').replace('[10.42.0.0/16]', '[10.42.0.0/16, 10.77.0.0/16]'))
  site.write('site.yaml', site.read('site.yaml').replace('spec:\n', 'spec:\n  labels: { region: eu }\n'))
  t.same(await join(), {
    code: 0,
    stdout:
      'this site is already a member of demo as milano: restored Membership self\n' +
      '  ~ Cluster milano\n' +
      '      spec.labels.region: (none) -> "eu"\n' +
      '      spec.podCIDRs: ["10.42.0.0/16"] -> ["10.42.0.0/16","10.77.0.0/16"]\n' +
      'the agent reports this to the broker when "sealane up" restarts on a gateway\n',
    stderr: '',
  })
  t.ok(site.has('state/objects/Membership/_/self.json'))
})

t.test('a site that never joined needs a token', async (t) => {
  const site = new SiteFolder(t)
  t.match(await runCli(['join', '--site', site.file]), { code: 2, stderr: /^sealane: no join token: expected --token/ })
})

t.test('as another member: refused', async (t) => {
  const { broker, join } = await member(t)
  const elsewhere = 'sealane: this site is already joined as milano in clusterset demo\nleave first: sealane leave\n'
  const refused = { code: 1, stdout: '', stderr: elsewhere }
  t.same(await join('--cluster-id', 'roma'), refused)
  t.same(await join('--cluster-id', 'roma', '--token', await broker.token()), refused)
  const other = await LoopbackBroker.start(t, { clusterset: 'other' })
  t.same(await join('--token', await other.token()), refused)
})

t.test('--expose: into the site file, which keeps its form, and into the Membership of a new member', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t)
  const before = site.read('site.yaml')
  const join = async (...more: string[]): Promise<CliResult> => runCli(['join', '--site', site.file, ...more])
  t.match(await join('--expose', 'all'), { code: 2, stderr: /--expose "all": expected exports, pods, nothing/ })
  t.equal((await join('--token', 'slt1.x', '--expose', 'pods')).code, 1)
  t.equal(site.read('site.yaml'), before, 'a join that failed changes nothing')
  const first = await join('--token', await broker.token(), '--expose', 'pods')
  t.match(first, { code: 0, stderr: /site.yaml: spec.exposure: \(none\) -> pods\n/ })
  t.equal(site.read('site.yaml'), before.replace('spec:\n', 'spec:\n  exposure: pods\n'))
  const exposed = (): unknown => (JSON.parse(site.read('state/objects/Membership/_/self.json')) as Shown).spec.exposure
  t.equal(exposed(), 'pods')
  t.same(await join(), { code: 0, stdout: ALREADY, stderr: '' }, 'it stays')
  const again = await join('--expose', 'nothing')
  t.match(again, { code: 0, stdout: ALREADY, stderr: /pods -> nothing\nthis counts when "sealane up" restarts\n$/ })
  t.equal(site.read('site.yaml'), before.replace('spec:\n', 'spec:\n  exposure: nothing\n'))
  const silent = await member(t)
  const kept = silent.site.read('state/objects/Membership/_/self.json')
  t.equal((JSON.parse(kept) as Shown).spec.exposure, 'exports', 'the default of a new member')
  t.notMatch(silent.site.read('site.yaml'), /exposure/)
})

interface Shown {
  readonly spec: { readonly exposure?: string }
}

t.test(
  '--prefer-local: one file of the folder of objects, which a leave removes; that of somebody else stays',
  async (t) => {
    const { site, join } = await member(t)
    const file = 'objects/clustertrafficpolicy-default.yaml'
    const path = site.path(file)
    t.same(await join('--prefer-local'), {
      code: 0,
      stdout: ALREADY,
      stderr: `${path}: ClusterTrafficPolicy default: calls prefer this site, its zone and its region\n`,
    })
    const text = site.read(file)
    t.match(text, /managed-by: sealane\nspec:\n {2}order:\n {4}- local: {}\n[^]*zone.sealane.io[^]*- any: {}\n$/)
    t.same(await join('--prefer-local'), { code: 0, stdout: ALREADY, stderr: '' }, 'again: nothing changes')
    t.equal((await runCli(['site', 'check', '--site', site.file])).code, 0)
    const edited = text.replace(LOCAL, '')
    for (const own of [edited, edited.replace(/ {2}labels:\n.*\n/, '')]) {
      site.write(file, own)
      const stays = await join('--prefer-local')
      t.match(stays, {
        code: 0,
        stderr: /^ClusterTrafficPolicy default is not as sealane join writes it, and stays as it is;/,
      })
      t.match(stays.stderr, /^ {6}spec.order: /m)
      t.equal(site.read(file), own)
    }
    site.write(file, text)
    const asked = await runCli(['leave', '--site', site.file])
    t.match(asked, { code: 2, stderr: /^ {2}the ClusterTrafficPolicy of join --prefer-local$/m })
    const left = await runCli(['leave', '--yes', '--site', site.file])
    t.match(left, { code: 0, stderr: `${path} was removed\n` })
    t.notOk(site.has(file))
    const another = await member(t)
    another.site.write(file, edited)
    const kept = await runCli(['leave', '--yes', '--site', another.site.file])
    t.match(kept, { code: 0, stderr: /^ClusterTrafficPolicy default was edited after the join, and stays$/m })
    t.equal(another.site.read(file), edited)
  },
)

t.test('--prefer-local at the first join, and a policy that shares its file', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t)
  const words = ['join', '--site', site.file, '--prefer-local']
  t.equal((await runCli([...words, '--token', await broker.token()])).code, 0)
  const file = 'objects/clustertrafficpolicy-default.yaml'
  const text = site.read(file)
  const own = `${text}---\n${site.read('objects/nodes.yaml')}`
  site.write('objects/nodes.yaml', own)
  site.remove(file)
  t.match(await runCli(words), { code: 0, stderr: '' }, 'again: nothing changes')
  const left = await runCli(['leave', '--yes', '--site', site.file])
  t.match(left, { code: 0, stderr: /ClusterTrafficPolicy default shares .*nodes.yaml with other objects; remove it/ })
  t.equal(site.read('objects/nodes.yaml'), own)
})
