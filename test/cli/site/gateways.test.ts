/** Gateways of a site are drained and rotate their keys by the same commands as those of a cluster. */
import t, { type Test } from 'tap'
import { FileApi } from '../../../kubeapi/files/file-api.ts'
import type { Condition, Gateway } from '../../../model/objects.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { gatewayObject } from '../../support/objects/node-objects.ts'
import { runCli, startCli } from '../run-cli.ts'
import { SiteFolder } from '../site-folder.ts'

function open(t: Test, site: SiteFolder): FileApi {
  const init = { objects: site.path('objects'), state: site.path('state') }
  const api = new FileApi({ clock: new SystemClock(), logger: new CapturingLogger() }, init)
  t.teardown(() => api.close())
  return api
}

async function report(api: FileApi, name: string, drained?: Condition['status']): Promise<void> {
  const gateway: Gateway = gatewayObject(name, { connections: [] })
  await api.apply(gateway)
  const condition = {
    type: 'Drained',
    status: drained ?? 'False',
    reason: 'Starting' as const,
    message: 'two links carry',
  }
  const conditions = drained === undefined ? [] : [{ ...condition, lastTransitionTime: '2026-01-01T00:00:00Z' }]
  if (gateway.status !== undefined) await api.applyStatus({ ...gateway, status: { ...gateway.status, conditions } })
}

const TWO = '  gateways: [{ node: gw1 }, { node: gw2 }]\n'

t.test('drain marks the Node in its file and waits; undrain takes the mark away', async (t) => {
  const site = new SiteFolder(t, 'milano', TWO)
  const before = site.read('objects/nodes.yaml')
  const api = open(t, site)
  for (const name of ['gw1', 'gw2']) await report(api, name)
  const drain = startCli(['gateway', 'drain', 'gw1', '--site', site.file])
  await drain.remarked(/changed {3}Node gw1 {2}\(sealane\.io\/drain=true\)/)
  t.match(site.read('objects/nodes.yaml'), /name: gw1, labels: \{ sealane\.io\/drain: "true" \}/)
  await report(api, 'gw1', 'True')
  t.match(await drain.result, { code: 0, stdout: 'gw1 carries no traffic\n' })
  const undrain = await runCli(['gateway', 'undrain', 'gw1', '--site', site.file])
  t.match(undrain, { code: 0, stdout: /^gw1 can carry traffic again/ })
  const after = site.read('objects/nodes.yaml').replaceAll('[ {', '[{').replaceAll('} ]', '}]')
  t.equal(after, before)
})

t.test('words of a site', async (t) => {
  const site = new SiteFolder(t, 'milano', TWO)
  await report(open(t, site), 'gw1')
  const only = await runCli(['gateway', 'drain', 'gw1', '--site', site.file])
  t.equal(only.code, 1)
  t.match(
    only.stderr,
    `first add a gateway: name another node in spec.gateways of ${site.file}, and start "sealane up" on it`,
  )
  t.notMatch(only.stderr, 'kubectl')
  t.match(await runCli(['gateway', 'drain', 'w9', '--site', site.file]), { code: 1, stderr: /Node w9: / })
  t.match(await runCli(['gateway', 'rotate-keys', '--site', site.file]), { code: 1, stderr: /no active gateway/ })
  t.match(await runCli(['gateway', 'drain', 'gw1', '--site', site.path('none')]), {
    code: 2,
    stderr:
      /expected --context, --kubeconfig or KUBECONFIG\non a site without Kubernetes, name its site file: --site FILE/,
  })
})
