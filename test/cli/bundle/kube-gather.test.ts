/** `sealane gather` of a Kubernetes cluster: reads alone, logs and pages of pods, and what may not be read. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { spellingsOf } from '../../../cli/bundle/redactor.ts'
import { unpackTar } from '../../../cli/bundle/tar.ts'
import { KIND_PLACES } from '../../../kubeapi/kube/kinds.ts'
import { type FakeApiServer, fakeApiServer } from '../../support/fake-api-server.ts'
import { healthyObjects } from '../../support/objects/member-facts.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { runCli } from '../run-cli.ts'
import { CARRIERS, PASSWORD, SECRETS } from './planted-secrets.ts'
import { OBJECT_FORMS, TEXT_FORMS } from './secret-forms.ts'

const PLACES: Readonly<Record<string, { readonly apiVersion: string; readonly plural: string }>> = {
  ...KIND_PLACES,
  Deployment: { apiVersion: 'apps/v1', plural: 'deployments' },
  DaemonSet: { apiVersion: 'apps/v1', plural: 'daemonsets' },
  NetworkPolicy: { apiVersion: 'networking.k8s.io/v1', plural: 'networkpolicies' },
  ConfigMap: { apiVersion: 'v1', plural: 'configmaps' },
  Event: { apiVersion: 'v1', plural: 'events' },
}

const CLUSTER_WIDE = new Set(['Node', 'Gateway', 'Endpoint'])

/** Pods with secrets in their variables, logs and pages. */
async function plantedCluster(t: Test): Promise<FakeApiServer> {
  const server = await fakeApiServer(t)
  const env = [{ name: 'ETCD_PASSWORD', value: PASSWORD }]
  for (const [kind, items] of Object.entries(healthyObjects())) {
    const { apiVersion = '', plural = '' } = PLACES[kind] ?? {}
    for (const item of items as { metadata: { name: string; namespace?: string } }[]) {
      const { name, namespace } = item.metadata
      const place = { resource: `${apiVersion}/${plural}`, apiVersion, kind, namespace, name }
      const spec = { containers: [{ name: 'agent', env, args: CARRIERS }] }
      server.objects.put(place, { apiVersion, kind, ...item, ...(kind === 'Pod' ? { spec } : {}) })
    }
  }
  server.fault = ({ path }) => {
    if (path.includes('/log')) return { status: 200, body: CARRIERS.join('\n') }
    if (path.endsWith('/proxy/status')) return { status: 200, body: { part: 'agent', version: '0.1.0', ready: true } }
    return path.includes('/proxy/') ? { status: 403, body: { message: `for loopback ${PASSWORD}` } } : undefined
  }
  return server
}

t.test('objects, logs and pages are in it, no secret, and it is read back', async (t) => {
  const server = await plantedCluster(t)
  const file = join(temporaryFolder(t), 'c1.tar.gz')
  for (const force of [[], ['--force']]) {
    const { code, stderr } = await runCli(['gather', '--kubeconfig', server.kubeconfig, '-o', file, ...force])
    t.equal(code, 0, stderr)
    t.match(stderr, /not included: plan\/sealane-agent-0\.txt: /)
    t.notMatch(stderr, PASSWORD)
    const files = unpackTar(gunzipSync(readFileSync(file)), 5000)
    for (const name of ['objects/Pod.json', 'objects/Gateway.json', 'logs/sealane-agent-0.agent.txt', 'facts.json']) {
      t.ok((files.get(`sealane-gather/${name}`)?.length ?? 0) > 100, name)
    }
    const spellings = SECRETS.flatMap(spellingsOf)
    for (const [name, content] of files) {
      const text = content.toString()
      t.same(
        spellings.filter((one) => text.includes(one)),
        [],
        name,
      )
    }
  }
  t.same(
    server.requests.filter((line) => !line.startsWith('GET ') || line.includes('/secrets')),
    [],
    'it writes nothing, and asks for no Secret',
  )
  const { stdout } = await runCli(['status', '--bundle', file, '-o', 'json'])
  t.match(JSON.parse(stdout), { cluster: 'milano', clusterset: 'demo' })
})

t.test('none of all forms of secrets is in the file, whatever has it', async (t) => {
  const server = await plantedCluster(t)
  const secrets: string[] = []
  const next = (): string => secrets[secrets.push(`hunter2Zq-horse${1000 + secrets.length}`) - 1] ?? ''
  for (const [index, { kind, of }] of Object.values(OBJECT_FORMS).entries()) {
    const { apiVersion, plural } = PLACES[kind] ?? {}
    if (apiVersion === undefined) continue
    const { metadata, ...rest } = of(next()) as { readonly metadata?: object }
    const at = { name: `form-${index}`, ...(CLUSTER_WIDE.has(kind) ? {} : { namespace: 'sealane-system' }) }
    const place = { resource: `${apiVersion}/${plural}`, apiVersion, kind, namespace: at.namespace, name: at.name }
    server.objects.put(place, { apiVersion, kind, metadata: { ...at, ...metadata }, ...rest })
  }
  const lines = Object.values(TEXT_FORMS).flatMap((of) => [
    of(next()),
    JSON.stringify({ level: 'info', msg: of(next()) }),
  ])
  server.fault = ({ path }) => {
    if (path.includes('/log')) return { status: 200, body: lines.join('\n') }
    if (path.endsWith('/proxy/status')) return { status: 200, body: { part: 'agent', version: '0.1.0', token: next() } }
    if (path.endsWith('/proxy/debug/plan')) return { status: 200, body: `# nft\n${lines.join('\n')}` }
    return path.includes('/proxy/') ? { status: 403, body: { message: `pass=${next()}` } } : undefined
  }
  const file = join(temporaryFolder(t), 'c1.tar.gz')
  const { code, stderr } = await runCli(['gather', '--kubeconfig', server.kubeconfig, '-o', file])
  t.equal(code, 0, stderr)
  const files = [...unpackTar(gunzipSync(readFileSync(file)), 5000)].map(([name, content]) => [
    name,
    content.toString(),
  ])
  const all = files.map(([, text]) => text).join('\n')
  t.match(all, '"name": "form-0"')
  t.match(all, '<left out>')
  t.ok(secrets.length > 180, `${secrets.length} secrets`)
  const out = secrets.filter((one) =>
    spellingsOf(one).some((spelling) => all.includes(spelling) || stderr.includes(spelling)),
  )
  t.same(out, [])
})

t.test('what may not be read costs itself alone', async (t) => {
  const server = await plantedCluster(t)
  const before = server.fault
  server.fault = (request) =>
    /\/(events|nodes|networkpolicies)|\/log/.test(request.path)
      ? { status: 403, body: { message: 'no right', reason: 'Forbidden' } }
      : before?.(request)
  const file = join(temporaryFolder(t), 'c1.tar.gz')
  const { code, stderr } = await runCli(['gather', '--kubeconfig', server.kubeconfig, '-o', file])
  t.equal(code, 0, stderr)
  for (const item of ['objects/Node.json', 'logs/sealane-agent-0.agent.txt']) t.match(stderr, `not included: ${item}: `)
  t.notMatch(stderr, 'objects/Gateway.json')
})
