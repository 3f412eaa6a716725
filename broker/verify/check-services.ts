/** Of services: a clusterset IP is one service's alone, and rows about one service agree. */
import { type Prefix, containsAddress, parseAddress, parsePrefix } from '../../model/addresses/ip.ts'
import { recordKeyText } from '../../model/records.ts'
import type { ClusterId } from '../../model/ids.ts'
import { SETTINGS_KEY, type ServiceIpRow } from '../state/state.ts'
import type { CheckContext } from './findings.ts'

export function checkServices(context: CheckContext): void {
  const range = rangeOf(context)
  const owners = new Map<string, string>()
  for (const { key, value } of context.view.list('serviceIp')) {
    const owner = owners.get(value.ip)
    if (owner !== undefined)
      context.findings.add('StoreAddressTwice', `serviceIp ${key}`, `${value.ip} is also that of ${owner}`)
    owners.set(value.ip, owner ?? key)
    checkServiceIp(context, key, value, range)
  }
  for (const { key, value } of context.view.list('address')) {
    if (context.view.get('serviceIp', value.service)?.ip !== key)
      context.findings.add('StoreReferenceBroken', `address ${key}`, `service ${value.service} has not this address`)
  }
  checkExports(context)
  checkStamps(context)
}

function rangeOf({ view }: CheckContext): Prefix | undefined {
  try {
    const text = view.get('settings', SETTINGS_KEY)?.clustersetIpRange
    return text === undefined ? undefined : parsePrefix(text)
  } catch {
    // Said where the settings are looked at.
    return undefined
  }
}

function checkServiceIp(
  { view, findings }: CheckContext,
  service: string,
  { ip, exporters, releasedAtMs }: ServiceIpRow,
  range: Prefix | undefined,
): void {
  const subject = `serviceIp ${service}`
  if (range !== undefined && !isIn(range, ip))
    findings.add('StoreRowInvalid', subject, `${ip}: expected an address of the clusterset IP range`)
  if (view.get('address', ip)?.service !== service)
    findings.add('StoreReferenceBroken', subject, `the row of address ${ip} names another service, or is not there`)
  if ((exporters.length === 0) !== (releasedAtMs !== undefined))
    findings.add('StoreRowInvalid', subject, 'expected exporters, or a time at which the last one went')
  if (exporters.some((one, i) => i > 0 && one <= (exporters[i - 1] ?? '')))
    findings.add('StoreRowInvalid', subject, 'expected exporters in order, each once')
  for (const cluster of exporters) {
    const body = exportOf(view, cluster, service)
    if (body?.kind !== 'ServiceExport' || body.type !== 'ClusterSetIP')
      findings.add('StoreReferenceBroken', subject, `cluster "${cluster}" does not export it with an address`)
  }
  const record = view.get('record', clustersetIpKey(service))?.body
  // The row may have anything in its body.
  const stated = record?.kind === 'ClusterSetIP' && Array.isArray(record.ips) ? record.ips.join() : undefined
  if (stated !== (exporters.length === 0 ? undefined : ip))
    findings.add('StoreReferenceBroken', subject, `its ClusterSetIP record says ${stated ?? 'nothing'}, it has ${ip}`)
}

function checkExports({ view, findings }: CheckContext): void {
  for (const { key, value } of view.list('record')) {
    const { body } = value
    const [cluster = '', , namespace = '', name = ''] = key.split('/')
    const service = `${namespace}/${name}`
    if (body.kind === 'ClusterSetIP' && view.get('serviceIp', service) === undefined)
      findings.add('StoreReferenceBroken', `record ${key}`, 'there is no row of the address that it tells')
    if (body.kind !== 'ServiceExport') continue
    const isCounted = view.get('serviceIp', service)?.exporters.includes(cluster) === true
    if (isCounted !== (body.type === 'ClusterSetIP'))
      findings.add('StoreReferenceBroken', `record ${key}`, `serviceIp ${service} and its type say different things`)
    if (view.get('stamp', `${cluster}/${service}`)?.uid !== body.uid)
      findings.add('StoreReferenceBroken', `record ${key}`, 'the row of its age is of another export, or is not there')
  }
}

function checkStamps({ view, findings }: CheckContext): void {
  for (const { key, value } of view.list('stamp')) {
    const slash = key.indexOf('/')
    const isThere = exportOf(view, key.slice(0, slash), key.slice(slash + 1)) !== undefined
    if (isThere === (value.withdrawnAtMs === undefined)) continue
    const text = isThere ? 'its export is there, and it says that it was withdrawn' : 'there is no export of it'
    findings.add('StoreReferenceBroken', `stamp ${key}`, text)
  }
}

function exportOf(view: CheckContext['view'], cluster: string, service: string) {
  const [namespace = '', name = ''] = service.split('/')
  const key = recordKeyText({ cluster: cluster as ClusterId, kind: 'ServiceExport', namespace, name })
  return view.get('record', key)?.body
}

function clustersetIpKey(service: string): string {
  const [namespace = '', name = ''] = service.split('/')
  return recordKeyText({ cluster: '', kind: 'ClusterSetIP', namespace, name })
}

function isIn(range: Prefix, text: string): boolean {
  try {
    return containsAddress(range, parseAddress(text))
  } catch {
    return false
  }
}
