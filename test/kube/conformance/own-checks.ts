/**
 * Checks of conditions that the suite's results depend on, and does not test itself. They run after it, on the same
 * clusters.
 */
import { eventually } from '../../support/eventually.ts'
import {
  type Site,
  callers,
  helloDeployment,
  helloService,
  lookUp,
  openNamespace,
  readyPods,
} from '../support/callers.ts'
import { awaitImport, exportService, findImport, importedSlices } from '../support/service-imports.ts'
import type { SpecRow } from './report.ts'

const NAMESPACE = 'own-checks'
const GROUP = 'Own'
const TIMES = 20

/** Runs all of them. The first site exports; never throws for a check that fails. */
export async function ownChecks(sites: readonly Site[]): Promise<readonly SpecRow[]> {
  const checks: readonly [string, (sites: readonly Site[]) => Promise<void>][] = [
    ['A service that was not exported is reached by the very same calls once it is', exportOpens],
    ['A local service of the same name is not impacted by an import', localStays],
    ['An import says that its EndpointSlices are there, and they are', slicesAreAnnounced],
    ['Every address that DNS gives for a headless service is one of its pods, in every cluster', headlessAnswers],
  ]
  await prepare(sites)
  const rows: SpecRow[] = []
  for (const [spec, check] of checks) {
    const failure = await check(sites).then(
      () => undefined,
      (error: unknown) => (error as Error).message,
    )
    rows.push({ group: GROUP, spec, result: failure === undefined ? 'passed' : 'failed', reason: failure ?? '' })
  }
  return rows
}

async function prepare(sites: readonly Site[]): Promise<void> {
  for (const site of sites) {
    await openNamespace(site, NAMESPACE, helloDeployment(site.name))
    await readyPods(site, NAMESPACE, 2)
    await site.api.apply(`/api/v1/namespaces/${NAMESPACE}/services/hello`, helloService('hello'))
  }
}

/** Without this check, "an unexported service is inaccessible" would also pass if no call could succeed at all. */
async function exportOpens([exporter, ...others]: readonly Site[]): Promise<void> {
  if (exporter === undefined) throw new Error('there is no cluster')
  const name = 'lone'
  await exporter.api.apply(`/api/v1/namespaces/${NAMESPACE}/services/${name}`, helloService(name))
  const host = `${name}.${NAMESPACE}.svc.clusterset.local`
  const all = [exporter, ...others]
  for (const site of all) await expectAnswer(site, host, 'nobody')
  await exportService(exporter, NAMESPACE, name)
  for (const site of all) {
    await awaitImport(site, NAMESPACE, name)
    await eventually(async () => (await callers(site, { namespace: NAMESPACE, host, times: 1 })) === exporter.name, {
      deadlineMs: 20_000,
      say: `an answer of ${host} in ${site.name}`,
    })
    await expectAnswer(site, host, exporter.name)
  }
}

async function localStays(sites: readonly Site[]): Promise<void> {
  const [exporter] = sites
  if (exporter === undefined) throw new Error('there is no cluster')
  const local = `hello.${NAMESPACE}.svc.cluster.local`
  for (const site of sites) await expectAnswer(site, local, site.name)
  await exportService(exporter, NAMESPACE, 'hello')
  for (const site of sites) {
    await awaitImport(site, NAMESPACE, 'hello')
    const host = `hello.${NAMESPACE}.svc.clusterset.local`
    await eventually(async () => (await callers(site, { namespace: NAMESPACE, host, times: 1 })) === exporter.name, {
      deadlineMs: 20_000,
      say: `an answer of ${host} in ${site.name}`,
    })
    await expectAnswer(site, host, exporter.name)
    await expectAnswer(site, local, site.name)
  }
}

/**
 * The checks that release 0.5.1 of the standard's suite adds to 0.5.0 (its pull request 155). The import is that of
 * localStays.
 */
async function slicesAreAnnounced(sites: readonly Site[]): Promise<void> {
  const [exporter] = sites
  if (exporter === undefined) throw new Error('there is no cluster')
  for (const site of sites) {
    const say = `status.endpointSliceObjects of hello in ${site.name}`
    const reported = async (): Promise<boolean> =>
      (await findImport(site, NAMESPACE, 'hello'))?.status?.endpointSliceObjects === 'Present'
    await eventually(reported, { deadlineMs: 20_000, say })
    const slices = await importedSlices(site, NAMESPACE, 'hello', exporter.name)
    const ready = slices.flatMap(({ endpoints }) => endpoints.filter(({ conditions }) => conditions?.ready === true))
    if (ready.length === 0) throw new Error(`${site.name} has no ready endpoint of ${exporter.name} for hello`)
  }
}

/** This holds under translation too, where the addresses differ from cluster to cluster. */
async function headlessAnswers(sites: readonly Site[]): Promise<void> {
  const [exporter] = sites
  if (exporter === undefined) throw new Error('there is no cluster')
  const name = 'bare'
  const service = helloService(name, { clusterIP: 'None' })
  await exporter.api.apply(`/api/v1/namespaces/${NAMESPACE}/services/${name}`, service)
  await exportService(exporter, NAMESPACE, name)
  for (const site of sites) {
    await awaitImport(site, NAMESPACE, name)
    const addresses = await eventually(
      async () => {
        const [status, ...found] = (
          await lookUp(site, NAMESPACE, `${name}.${NAMESPACE}.svc.clusterset.local`, 'A')
        ).split(' ')
        return status === 'NOERROR' && found.length > 0 && found
      },
      { deadlineMs: 20_000, say: `addresses of ${name} in ${site.name}` },
    )
    if (addresses.length !== 1) throw new Error(`one pod has the addresses ${addresses.join(', ')} in ${site.name}`)
    for (const address of addresses) await expectAnswer(site, address, exporter.name)
  }
}

async function expectAnswer(site: Site, host: string, wanted: string): Promise<void> {
  const answered = await callers(site, { namespace: NAMESPACE, host, times: TIMES })
  if (answered === wanted) return
  throw new Error(`${TIMES} calls of ${host} in ${site.name} were answered by ${answered}, not by ${wanted}`)
}
