/** What a bundle says about one call is what the cluster says: policies, ports and slices are in it. */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { PATH_DOCUMENT } from '../../../explain/path/document.ts'
import { memberObjects, pathObjects } from '../../explain/path/two-members.ts'
import { accessPolicy, clusterAccessPolicy } from '../../support/objects/access-objects.ts'
import { type ObjectsByKind, SELF } from '../../support/objects/member-facts.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { runCli } from '../run-cli.ts'
import { clusterWith } from '../status/cluster-with.ts'
import { siteWith } from '../status/site-with.ts'

const trafficPolicy = {
  apiVersion: 'sealane.io/v1alpha1',
  kind: 'TrafficPolicy',
  metadata: { name: 'db', namespace: 'shop', uid: 'p', generation: 1 },
  spec: { targetRefs: [{ name: 'db' }], order: [{ local: {} }, { any: {}, weights: { paris: 7 } }] },
}

async function gathered(t: Test, live: readonly string[]): Promise<string> {
  const file = join(temporaryFolder(t), 'c1.tar.gz')
  const { code, stderr } = await runCli(['gather', ...live, '-o', file])
  t.equal(code, 0, stderr)
  return file
}

/** The stations that objects decide. Ages and sources differ, and links are looked at in both ways anyway. */
const DECIDED = ['name', 'shares', 'access', 'backend']

async function explained(flags: readonly string[]): Promise<readonly unknown[]> {
  const { stdout } = await runCli(['explain', 'w0', 'db.shop:5432', ...flags, '-o', 'json'])
  const { steps } = PATH_DOCUMENT.parse(JSON.parse(stdout))
  return steps
    .filter(({ station }) => DECIDED.includes(station))
    .map(({ station, decision, message }) => [station, decision, message])
}

t.test('explain of a cluster', async (t) => {
  const worlds: Readonly<Record<string, object>> = {
    'no policies': {},
    'traffic is divided': { TrafficPolicy: [trafficPolicy] },
    'calls are limited': {
      ClusterAccessPolicy: [
        { ...clusterAccessPolicy('deny'), spec: { default: 'deny', egress: [{ clusters: ['oslo'] }] } },
      ],
      AccessPolicy: [accessPolicy('shop/only', { from: [{ clusters: ['oslo'], namespaces: ['team'] }] })],
    },
  }
  const said = new Set<string>()
  for (const [say, more] of Object.entries(worlds)) {
    const { EndpointSlice, Namespace } = pathObjects(SELF)
    const objects = { ...memberObjects(SELF), EndpointSlice, Namespace, ...more } as unknown as ObjectsByKind
    const server = await clusterWith(t, objects)
    const live = ['--kubeconfig', server.kubeconfig]
    const file = await gathered(t, live)
    const steps = await explained(live)
    t.same(await explained(['--bundle', file]), steps, `${say}: explain`)
    said.add(JSON.stringify(steps))
  }
  t.equal(said.size, 3, 'each world says something else')
})

t.test('access check and show of a site', async (t) => {
  const kinds = ['Membership', 'Cluster', 'Endpoint', 'Gateway', 'RouteAgent', 'Node', 'ServiceExport', 'ServiceImport']
  const own = Object.entries(memberObjects(SELF)).filter(([kind]) => kinds.includes(kind))
  const objects = { ...Object.fromEntries(own), EndpointSlice: [...(pathObjects(SELF).EndpointSlice ?? [])] }
  const { file: site } = await siteWith(t, undefined, objects)
  const file = await gathered(t, ['--site', site])
  const said = new Set<string>()
  for (const words of [
    ['show', 'access'],
    ['show', 'traffic'],
    ['access', 'check', 'paris/team', 'web0.shop'],
    ['access', 'check', 'paris/team', 'web0.shop:80'],
    ['access', 'check', SELF, 'db.shop:5432'],
  ]) {
    const [one, other] = [await runCli([...words, '--site', site]), await runCli([...words, '--bundle', file])]
    t.same([other.code, other.stdout], [one.code, one.stdout], words.join(' '))
    said.add(one.stdout)
  }
  t.ok(said.size >= 3, [...said].join())
})

t.test('a bundle without the policies says so', async (t) => {
  const server = await clusterWith(t, memberObjects(SELF))
  server.fault = ({ path }) =>
    path.includes('accesspolicies') ? { status: 403, body: { reason: 'Forbidden', message: 'no' } } : undefined
  const file = join(temporaryFolder(t), 'c1.tar.gz')
  await runCli(['gather', '--kubeconfig', server.kubeconfig, '-o', file])
  const { code, stderr } = await runCli(['show', 'access', '--bundle', file])
  t.equal(code, 1)
  t.match(stderr, /--bundle .*: it has no AccessPolicy, ClusterAccessPolicy/)
})
