/** Adds, removes and lists the services of a site without Kubernetes, as objects in the user's folder. */
import { isDeepStrictEqual } from 'node:util'
import { removeUserObject, writeUserObject } from '../../kubeapi/files/files.ts'
import { type EndpointSlice, LABEL_K8S_SERVICE_NAME, LABEL_SOURCE_CLUSTER, type Service } from '../../model/model.ts'
import { formatAddress } from '../../model/addresses/addresses.ts'
import { ANNOTATION_CHECK } from '../../model/services/services.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { OpenSite } from '../context/context.ts'
import { type ServiceName, serviceExport, unexportService } from './export.ts'
import {
  type WantedService,
  isManaged,
  lineChanges,
  nodeOf,
  planService,
  serviceLines,
  serviceProblem,
} from './plan-service.ts'

export interface AddedService extends ServiceName {
  readonly change: 'added' | 'changed' | 'unchanged'
  /** The lines that are gone and those that are new, with `-` and `+`. */
  readonly changes: readonly string[]
  readonly exported: boolean
  /** What the user should know, as sentences. */
  readonly warnings: readonly string[]
}

/**
 * Writes the Service and its slices, and removes slices of an earlier call that are no longer wanted. The export stays as
 * it is unless `exported` says otherwise. Throws UserError with the option, the value and what was expected, and for a
 * service that the command has not written.
 */
export async function addService(
  site: OpenSite,
  wanted: WantedService,
  exported: boolean | undefined,
  signal: AbortSignal,
): Promise<AddedService> {
  checkPlain(site)
  const { config, api } = site
  const problem = serviceProblem(wanted, config.podCIDRs)
  if (problem !== undefined) throw new UserError(problem, { exitCode: 2 })
  const nodes = api.cache('Node')
  await nodes.whenSynced(signal)
  const present = await presentOf(site, wanted, signal)
  for (const object of [present.service, ...present.slices]) if (object !== undefined) checkManaged(object)
  const { service, slices } = planService(wanted, nodes.list(), present.service)
  const changes = lineChanges(serviceLines(present.service, present.slices), serviceLines(service, slices))
  if (changes.length > 0 || present.service === undefined) {
    const known = new Map(present.slices.map((slice) => [slice.metadata.name, slice]))
    const changed = slices.filter((slice) => !isSameSlice(known.get(slice.metadata.name), slice))
    for (const object of [service, ...changed]) await writeUserObject(config.objects, object)
    const kept = new Set(slices.map(({ metadata }) => metadata.name))
    for (const { metadata } of present.slices) {
      if (!kept.has(metadata.name)) {
        removeUserObject(config.objects, 'EndpointSlice', metadata.name, metadata.namespace)
      }
    }
  }
  if (exported === true) await writeExport(site, wanted, signal)
  else if (exported === false) await unexportService(site, wanted, signal)
  const isExported = exported ?? (await hasExport(site, wanted, signal))
  const { namespace, name, backends } = wanted
  const lost = backends.filter(({ address }) => nodeOf(address, nodes.list()) === undefined)
  const warnings = lost.map(({ address }) => {
    return `backend ${formatAddress(address)} is in the podCIDRs of no Node: gateways have no way to it`
  })
  const change = present.service === undefined ? 'added' : changes.length > 0 ? 'changed' : 'unchanged'
  return { namespace, name, change, changes, exported: isExported, warnings }
}

/**
 * Removes the export first, so that no site calls a service without backends, then the slices and the Service. Gives
 * false if there is no such service. Throws UserError for a service that the command has not written.
 */
export async function removeService(site: OpenSite, service: ServiceName, signal: AbortSignal): Promise<boolean> {
  checkPlain(site)
  const { objects } = site.config
  const present = await presentOf(site, service, signal)
  const all = [...present.slices, ...(present.service === undefined ? [] : [present.service])]
  for (const object of all) checkManaged(object)
  if (all.length === 0) return false
  await unexportService(site, service, signal)
  for (const { kind, metadata } of all) removeUserObject(objects, kind, metadata.name, metadata.namespace)
  return true
}

/** A backend of a service of this site, or a service without backends. */
export interface BackendRow extends ServiceName {
  /** Such as `http:80/TCP`. */
  readonly ports: readonly string[]
  /** The value of the annotation; absent without a check. */
  readonly check?: string
  readonly exported: boolean
  /** Absent if the service has no backend. */
  readonly backend?: string
  readonly node?: string
  /** `up` and `down` by the check; `unchecked` as long as there is no result; else what the slice says. */
  readonly state: 'up' | 'down' | 'unchecked' | 'ready' | 'not ready' | 'no backends'
  /** RFC 3339 time since when the check gives this state. */
  readonly since?: string
  readonly message?: string
}

/** The backends of the services of this site, sorted by namespace, service and slice. Also those written by hand. */
export async function listServices({ api }: OpenSite, signal: AbortSignal): Promise<readonly BackendRow[]> {
  const [services, slices, exports] = [api.cache('Service'), api.cache('EndpointSlice'), api.cache('ServiceExport')]
  await Promise.all([services.whenSynced(signal), slices.whenSynced(signal), exports.whenSynced(signal)])
  return services.list().flatMap((service): readonly BackendRow[] => {
    const { name, namespace = '' } = service.metadata
    const ports = (service.spec?.ports ?? []).map(({ name: title, port, protocol = 'TCP' }) => {
      return `${title === undefined ? '' : `${title}:`}${port}/${protocol}`
    })
    const head = { namespace, name, ports, exported: exports.get(name, namespace) !== undefined }
    const rows = slicesOf(slices.list(), { namespace, name }).flatMap((slice) => backendRows(head, slice))
    return rows.length > 0 ? rows : [{ ...head, state: 'no backends' }]
  })
}

function backendRows(
  head: Pick<BackendRow, 'namespace' | 'name' | 'ports' | 'exported'>,
  { metadata, endpoints = [], status }: EndpointSlice,
): readonly BackendRow[] {
  const check = metadata.annotations?.[ANNOTATION_CHECK]
  return endpoints.map(({ addresses, nodeName, conditions }): BackendRow => {
    const [backend = ''] = addresses
    const found = status?.backends.find(({ address }) => address === backend)
    const stated = conditions?.ready === false ? 'not ready' : 'ready'
    // What the user calls not ready stays so, whatever the check says.
    const isDrained = found?.up !== false && stated === 'not ready'
    const checked = found === undefined ? 'unchecked' : found.up ? 'up' : 'down'
    return {
      ...head,
      backend,
      ...(nodeName === undefined ? {} : { node: nodeName }),
      ...(check === undefined ? {} : { check }),
      state: check === undefined || isDrained ? stated : checked,
      ...(found === undefined ? {} : { since: found.since }),
      ...(found?.message === undefined ? {} : { message: found.message }),
    }
  })
}

interface PresentService {
  readonly service: Service | undefined
  readonly slices: readonly EndpointSlice[]
}

async function presentOf({ api }: OpenSite, service: ServiceName, signal: AbortSignal): Promise<PresentService> {
  const [services, slices] = [api.cache('Service'), api.cache('EndpointSlice')]
  await Promise.all([services.whenSynced(signal), slices.whenSynced(signal)])
  return { service: services.get(service.name, service.namespace), slices: slicesOf(slices.list(), service) }
}

function slicesOf(slices: readonly EndpointSlice[], { namespace, name }: ServiceName): readonly EndpointSlice[] {
  return slices.filter(({ metadata: { labels = {}, namespace: place } }) => {
    return place === namespace && labels[LABEL_K8S_SERVICE_NAME] === name && labels[LABEL_SOURCE_CLUSTER] === undefined
  })
}

/** Compares what the command writes. The cache also shows metadata of the driver and the results of checks. */
function isSameSlice(present: EndpointSlice | undefined, wanted: EndpointSlice): boolean {
  if (present === undefined) return false
  const lines = (slice: EndpointSlice): readonly string[] => serviceLines(undefined, [slice])
  return isDeepStrictEqual(lines(present), lines(wanted)) && isDeepStrictEqual(present.ports, wanted.ports)
}

async function hasExport({ api }: OpenSite, { name, namespace }: ServiceName, signal: AbortSignal): Promise<boolean> {
  const exports = api.cache('ServiceExport')
  await exports.whenSynced(signal)
  return exports.get(name, namespace) !== undefined
}

/** An export that is there stays: the user may have given it labels. */
async function writeExport(site: OpenSite, service: ServiceName, signal: AbortSignal): Promise<void> {
  if (await hasExport(site, service, signal)) return
  // The cache may not show the Service yet, so exportService() would refuse it.
  await writeUserObject(site.config.objects, serviceExport(service))
}

function checkPlain({ config, admin }: OpenSite): void {
  if (config.kubernetes === undefined && admin === undefined) return
  throw new UserError(
    `${config.file}: this site is a Kubernetes cluster: create a Service there, with readiness probes`,
    {
      exitCode: 2,
      hint: 'then: sealane export NAME',
    },
  )
}

function checkManaged(object: Service | EndpointSlice): void {
  if (isManaged(object)) return
  const { kind, metadata } = object
  throw new UserError(
    `${kind} ${metadata.namespace ?? ''}/${metadata.name} is among the objects of this site and was not written by sealane service add: it is not changed`,
    { hint: 'edit its file by hand, or choose another name' },
  )
}
