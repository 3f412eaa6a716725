/** `sealane explain` of clusters, of a site and of a bundle: what it asks, its documents, and its exit codes. */
import t, { type Test } from 'tap'
import { PATH_DOCUMENT } from '../../explain/path/document.ts'
import { type ObjectsByKind, SELF } from '../support/objects/member-facts.ts'
import type { FakeApiServer } from '../support/fake-api-server.ts'
import { memberObjects, pathObjects } from '../explain/path/two-members.ts'
import { runCli } from './run-cli.ts'
import { clusterWith, pods } from './status/cluster-with.ts'
import { cutOff, siteWith } from './status/site-with.ts'

function cluster(t: Test, id: typeof SELF | 'paris'): Promise<FakeApiServer> {
  const objects = memberObjects(id)
  const { EndpointSlice: slices, Namespace, Pod = [] } = pathObjects(id)
  const whole = { ...objects, EndpointSlice: slices, Namespace, Pod: [...(objects.Pod ?? []), ...Pod] }
  return clusterWith(t, whole as unknown as ObjectsByKind)
}

t.test('a cluster, with the called one and without', async (t) => {
  const [here, there] = [await cluster(t, SELF), await cluster(t, 'paris')]
  const ask = ['explain', 'shop/front-0', 'db.shop:5432', '--kubeconfig', here.kubeconfig]
  const alone = await runCli([...ask, '-o', 'json'])
  t.equal(alone.stderr, '')
  const document = PATH_DOCUMENT.parse(JSON.parse(alone.stdout))
  t.match(document, { outcome: 'UNDETERMINED', from: 'shop/front-0', to: 'db.shop:5432' })
  t.equal(alone.code, 3)
  t.same(
    document.steps.filter(({ decision }) => decision === 'unknown').map(({ station }) => station),
    ['far-node', 'far-pod', 'far-node'],
  )
  t.same(
    here.requests.filter((line) => !line.startsWith('GET ')),
    [],
    'it only reads',
  )
  t.ok(
    here.requests.some((line) => /endpointslices.*labelSelector=[^&]*%3Ddb(&|$| )/.test(line)),
    'the slices of the called service alone are read whole',
  )
  t.ok(there.requests.length === 0)
})

t.test('what this user may not list is named, and the rest counts', async (t) => {
  const server = await cluster(t, SELF)
  server.fault = (request) =>
    request.path.includes('clusteraccesspolicies')
      ? { status: 403, body: { reason: 'Forbidden', message: 'no' } }
      : pods(request)
  const { code, stdout } = await runCli([
    ...['explain', 'shop/front-0', 'db.shop', '--kubeconfig', server.kubeconfig, '-o', 'json'],
  ])
  t.equal(code, 3)
  const { notAsked, steps } = PATH_DOCUMENT.parse(JSON.parse(stdout))
  t.match(notAsked.join('\n'), /ClusterAccessPolicy: .*the right to list clusteraccesspolicies.sealane.io is needed/)
  t.match(
    steps.find(({ station }) => station === 'access'),
    { decision: 'unknown' },
  )
})

t.test('a site: reachable as far as it knows, cut off, and wrong questions', async (t) => {
  const objects = memberObjects(SELF)
  const own = { ...objects, EndpointSlice: [...(pathObjects(SELF).EndpointSlice ?? [])] }
  const atSite = Object.fromEntries(
    Object.entries(own).filter(([kind]) => !['Pod', 'Deployment', 'DaemonSet', 'NetworkPolicy'].includes(kind)),
  )
  const site = await siteWith(t, undefined, atSite)
  const explain = (file: string, ...words: string[]) =>
    runCli(['explain', ...words, '--site', file, '--ask', '127.0.0.1:9'])
  const well = await explain(site.file, 'w0', 'db.shop:5432')
  t.match(well, { code: 3, stdout: /^UNDETERMINED: w0 to db.shop:5432\n/ })
  t.match(well.stdout, /could not be asked:\n {2}node of the pod in paris/)
  const far = Object.entries({
    ...memberObjects('paris'),
    EndpointSlice: [...(pathObjects('paris').EndpointSlice ?? [])],
  })
  const paris = await siteWith(t, undefined, Object.fromEntries(far.filter(([kind]) => kind in atSite)))
  const both = await explain(site.file, 'w0', 'db.shop:5432', '--to-site', paris.file)
  t.match(both, { code: 0, stdout: /^REACHABLE: w0 to db.shop:5432\nall steps pass, there and back\n/ }, both.stdout)
  const cut = await siteWith(t, cutOff, atSite)
  const lost = await explain(cut.file, 'w0', 'db.shop:5432')
  t.match(lost, {
    code: 1,
    stdout: /^UNREACHABLE: w0 to db.shop:5432 \(ClusterCutOff\)\npackets end at step \d+, link: /,
  })
  const rows: readonly [words: string[], stderr: RegExp][] = [
    [['none', 'db.shop'], /node none: not in this cluster/],
    [['shop/a', 'db.shop'], /a site has no pods/],
    [['w0', 'db'], /TO "db": expected/],
    [['a/b/c', 'db.shop'], /FROM "a\/b\/c": expected/],
    [
      ['w0', 'db.shop:5432', '--probe', '--watch', '--interval', '5s'],
      /--interval 5s: expected 15s or more with --probe/,
    ],
  ]
  for (const [words, stderr] of rows) t.match(await explain(site.file, ...words), { code: 3, stdout: '', stderr })
})
