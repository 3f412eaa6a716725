/** `sealane explain` with `--to-context` and `--probe` between real clusters: what it says, and what packets do. */
import type { Test } from 'tap'
import type { PathExplanation } from '../../../explain/path/path.ts'
import { eventually } from '../../support/eventually.ts'
import { helloDeployment, helloService, openForCalls, openNamespace, readyPods } from '../support/callers.ts'
import type { JoinedClusters } from '../support/joined-clusters.ts'
import { awaitImport, exportService } from '../support/service-imports.ts'
import { trySealane } from '../support/sealane-command.ts'

export const EXPLAINED = 'explained'

export async function explained(t: Test, { sites, kubeconfig }: JoinedClusters): Promise<void> {
  const [c1, c2] = sites
  if (c1 === undefined || c2 === undefined) throw new Error('expected two clusters')
  await openForCalls(c1, EXPLAINED)
  await openNamespace(c2, EXPLAINED, helloDeployment('c2'))
  await c2.api.apply(`/api/v1/namespaces/${EXPLAINED}/services/hello`, helloService('hello'))
  await readyPods(c2, EXPLAINED, 2)
  await readyPods(c1, EXPLAINED, 1)
  await exportService(c2, EXPLAINED, 'hello')
  await awaitImport(c1, EXPLAINED, 'hello')
  const at = ['--kubeconfig', kubeconfig, '--context', 'c1', '--to-context', 'c2', '--timeout', '60s', '-o', 'json']
  const explain = async (from: string, to: string): Promise<[code: number, said: PathExplanation, stderr: string]> => {
    const { code, stdout, stderr } = await trySealane(['explain', from, to, ...at, '--probe'])
    return [code, JSON.parse(stdout) as PathExplanation, stderr]
  }
  for (const from of [`${EXPLAINED}/request`, 'c1n1']) {
    for (const protocol of ['tcp', 'udp']) {
      const [code, said, stderr] = await explain(from, `hello.${EXPLAINED}:42/${protocol}`)
      t.match(said, { probe: { result: 'answered' } }, `${from} by ${protocol}: ${stderr}`)
      t.comment(`exit code ${code}, ${said.outcome}: ${said.message}`)
      t.not(said.outcome, 'UNREACHABLE', 'what is answered is reached')
      t.equal(said.probe?.cluster, 'c2', 'the packets arrive there')
      t.ok(
        said.probe?.places.some(({ cluster }) => cluster === 'c2'),
        'and are followed there',
      )
      t.equal(code, 0)
    }
  }
  await c2.api.apply(`/api/v1/namespaces/${EXPLAINED}/services/closed`, helloService('closed', CLOSED))
  await exportService(c2, EXPLAINED, 'closed')
  await awaitImport(c1, EXPLAINED, 'closed')
  const [code, said, stderr] = await explain(`${EXPLAINED}/request`, `closed.${EXPLAINED}:43`)
  t.equal(said.probe?.result, 'refused', `no program listens at the port: ${said.probe?.message} ${stderr}`)
  t.comment(`exit code ${code}, ${said.outcome}: ${said.message}`)
  const left = eventually(async () => (await c1.api.list('/api/v1/pods?labelSelector=sealane.io/probe')).length === 0, {
    deadlineMs: 60_000,
    say: 'no probe pod is left',
  })
  t.ok(await left, 'nothing of the probes is left')
}

const CLOSED = { ports: [{ name: 'tcp', port: 43, protocol: 'TCP' }] }
