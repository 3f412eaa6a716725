/**
 * Checks records: each can be decoded, matches its hash, and belongs to a member. Also checks services, settings,
 * tokens and the audit outbox.
 */
import { isDeepStrictEqual } from 'node:util'
import { type Prefix, containsAddress, parseAddress, parsePrefix } from '../../model/addresses/addresses.ts'
import { type ClusterId, type MemberRecord, type StoredRecord, isDnsLabel, recordKeyText } from '../../model/model.ts'
import { parseBrokerAddress } from '../../protocol/protocol.ts'
import { CodecError, contentHash, decodeStoredRecord, encodeStoredRecord } from '../../protocol/codec/codec.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { MAX_WAITING } from '../audit/audit.ts'
import { TOPOLOGY_KEY } from '../records/records.ts'
import { AUDIT_ACTS, type RecordRow, SETTINGS_KEY, type ServiceIpRow, isLive, storedRecord } from '../store/store.ts'
import type { CheckContext } from './findings.ts'

/** Takes rows whose form is valid. Returns the keys of records that no other check may use. */
export function checkRecords(context: CheckContext): ReadonlySet<string> {
  const broken = new Set<string>()
  for (const { key, value } of context.view.list('record')) {
    const wrong = undecodable(key, value)
    if (wrong !== undefined) {
      broken.add(key)
      context.findings.add('StoreRowInvalid', `record ${key}`, wrong)
      continue
    }
    checkOwner(context, key, value)
    checkContent(context, key, value)
  }
  return broken
}

/** Returns what is wrong with a record that does not survive encoding and decoding. */
function undecodable(key: string, row: RecordRow): string | undefined {
  const stored = storedRecord(key, 1, row)
  if (recordKeyText(stored.key) !== key || stored.key.kind !== row.body.kind)
    return `expected a key of four parts with the kind of the body, ${row.body.kind}`
  try {
    const decoded: StoredRecord = decodeStoredRecord(encodeStoredRecord(stored))
    return isDeepStrictEqual(decoded.key, stored.key) ? undefined : 'the encoded record decodes to a different record'
  } catch (error) {
    // The writer may have left out a field that the codec relies on.
    return error instanceof CodecError ? error.message : `the record cannot be encoded: ${messageOf(error)}`
  }
}

function checkOwner({ view, findings }: CheckContext, text: string, { body }: RecordRow): void {
  const { cluster, namespace, name } = storedRecord(text, 1, { createdAtMs: 0, body }).key
  const subject = `record ${text}`
  if (body.kind === 'Topology' && text !== TOPOLOGY_KEY)
    findings.add('StoreRowInvalid', subject, `expected the key ${TOPOLOGY_KEY}`)
  if (body.kind === 'ClusterSetIP' || body.kind === 'Topology') {
    if (cluster !== '')
      findings.add('StoreRowInvalid', subject, 'expected an empty cluster, because the broker owns this record')
    return
  }
  if (!isLive(view.get('member', cluster)))
    findings.add('StoreReferenceBroken', subject, `cluster "${cluster}" is not a member`)
  if ((body.kind === 'Cluster' || body.kind === 'MemberStatus') && (name !== cluster || namespace !== ''))
    findings.add('StoreRowInvalid', subject, 'expected the id of the cluster as name, and no namespace')
}

/**
 * Checks records that members publish. The broker compares digests with the hash, so a wrong hash would never be
 * corrected.
 */
function checkContent({ findings }: CheckContext, text: string, { body, hash, bytes }: RecordRow): void {
  if (body.kind === 'Cluster' || body.kind === 'MemberStatus' || body.kind === 'ClusterSetIP') return
  if (body.kind === 'Topology') return
  const { namespace, name } = storedRecord(text, 1, { createdAtMs: 0, body }).key
  const record: MemberRecord = { namespace, name, body }
  const subject = `record ${text}`
  if (hash !== Buffer.from(contentHash(record)).toString('hex'))
    findings.add('StoreHashDiffers', subject, 'the content does not match its hash')
  if (bytes !== undefined && bytes !== Buffer.byteLength(JSON.stringify(body)))
    findings.add('StoreHashDiffers', subject, `the content is not ${bytes} bytes long`)
}

/** Checks services: a clusterset IP belongs to one service alone, and all rows about a service agree. */
export function checkServices(context: CheckContext): void {
  const range = rangeOf(context)
  const owners = new Map<string, string>()
  for (const { key, value } of context.view.list('serviceIp')) {
    const owner = owners.get(value.ip)
    if (owner !== undefined)
      context.findings.add('StoreAddressTwice', `serviceIp ${key}`, `${value.ip} also belongs to ${owner}`)
    owners.set(value.ip, owner ?? key)
    checkServiceIp(context, key, value, range)
  }
  for (const { key, value } of context.view.list('address')) {
    if (context.view.get('serviceIp', value.service)?.ip !== key)
      context.findings.add(
        'StoreReferenceBroken',
        `address ${key}`,
        `service ${value.service} does not have this address`,
      )
  }
  checkExports(context)
  checkStamps(context)
}

function rangeOf({ view }: CheckContext): Prefix | undefined {
  try {
    const text = view.get('settings', SETTINGS_KEY)?.clustersetIpRange
    return text === undefined ? undefined : parsePrefix(text)
  } catch {
    // checkSettings() reports an invalid range.
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
    findings.add('StoreReferenceBroken', subject, `the row of address ${ip} is missing or names a different service`)
  if ((exporters.length === 0) !== (releasedAtMs !== undefined))
    findings.add('StoreRowInvalid', subject, 'expected either exporters or releasedAtMs')
  if (exporters.some((one, i) => i > 0 && one <= (exporters[i - 1] ?? '')))
    findings.add('StoreRowInvalid', subject, 'expected sorted exporters without duplicates')
  for (const cluster of exporters) {
    const body = exportOf(view, cluster, service)
    if (body?.kind !== 'ServiceExport' || body.type !== 'ClusterSetIP')
      findings.add(
        'StoreReferenceBroken',
        subject,
        `cluster "${cluster}" does not export the service with a clusterset IP`,
      )
  }
  const record = view.get('record', clustersetIpKey(service))?.body
  // The body of this row was not checked and may hold anything.
  const stated = record?.kind === 'ClusterSetIP' && Array.isArray(record.ips) ? record.ips.join() : undefined
  if (stated !== (exporters.length === 0 ? undefined : ip))
    findings.add(
      'StoreReferenceBroken',
      subject,
      `its ClusterSetIP record has ${stated ?? 'no address'}, expected ${ip}`,
    )
}

function checkExports({ view, findings }: CheckContext): void {
  for (const { key, value } of view.list('record')) {
    const { body } = value
    const [cluster = '', , namespace = '', name = ''] = key.split('/')
    const service = `${namespace}/${name}`
    if (body.kind === 'ClusterSetIP' && view.get('serviceIp', service) === undefined)
      findings.add('StoreReferenceBroken', `record ${key}`, 'the row of its clusterset IP is missing')
    if (body.kind !== 'ServiceExport') continue
    const isCounted = view.get('serviceIp', service)?.exporters.includes(cluster) === true
    if (isCounted !== (body.type === 'ClusterSetIP'))
      findings.add(
        'StoreReferenceBroken',
        `record ${key}`,
        `serviceIp ${service} and the type of the record contradict each other`,
      )
    if (view.get('stamp', `${cluster}/${service}`)?.uid !== body.uid)
      findings.add(
        'StoreReferenceBroken',
        `record ${key}`,
        'the stamp row of this export is missing or belongs to a different export',
      )
  }
}

function checkStamps({ view, findings }: CheckContext): void {
  for (const { key, value } of view.list('stamp')) {
    const slash = key.indexOf('/')
    const isThere = exportOf(view, key.slice(0, slash), key.slice(slash + 1)) !== undefined
    if (isThere === (value.withdrawnAtMs === undefined)) continue
    const text = isThere
      ? 'the export exists, but the stamp says that it was withdrawn'
      : 'the export of this stamp does not exist'
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

// Checks of the settings, of tokens, and of events that wait for the audit log.

export function checkSettings({ view, findings }: CheckContext): void {
  const settings = view.get('settings', SETTINGS_KEY)
  if (settings === undefined) {
    if (view.count('member') + view.count('token') > 0)
      findings.add('StoreRowInvalid', 'settings', 'the settings are missing, although members or tokens exist')
    return
  }
  const wrong = (work: () => unknown): void => {
    try {
      work()
    } catch (error) {
      findings.add('StoreRowInvalid', 'settings', messageOf(error))
    }
  }
  const { clusterset, globalRange, clustersetIpRange, advertise } = settings
  if (!isDnsLabel(clusterset)) findings.add('StoreRowInvalid', 'settings', 'clusterset: expected a DNS label')
  wrong(() => parsePrefix(globalRange, 'globalRange'))
  wrong(() => parsePrefix(clustersetIpRange, 'clustersetIpRange'))
  for (const [i, one] of advertise.entries()) wrong(() => parseBrokerAddress(one, `advertise[${i}]`))
}

export function checkTokens({ view, findings }: CheckContext): void {
  const hashes = new Set<string>()
  for (const { key, value } of view.list('token')) {
    // The text leaves out the hash, since its reader could search for the secret.
    if (!/^[0-9a-f]{64}$/.test(value.hash))
      findings.add('StoreRowInvalid', `token ${key}`, 'hash: expected 64 hexadecimal digits')
    if (hashes.has(value.hash)) findings.add('StoreRowInvalid', `token ${key}`, 'a different token has the same secret')
    hashes.add(value.hash)
  }
}

/** Checks events that wait for the audit log: each has its own slot, and none appears twice. */
export function checkOutbox({ view, findings }: CheckContext): void {
  const ids = new Set<string>()
  const acts = new Set<string>(AUDIT_ACTS)
  for (const { key, value } of view.list('audit')) {
    const wrong = (text: string): void => findings.add('StoreOutboxInvalid', `audit ${key}`, text)
    const { id, act } = value.event
    if (!/^\d{4,}$/.test(key) || Number(key) >= MAX_WAITING) wrong(`expected a slot below ${MAX_WAITING}`)
    if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id)) wrong('the id is not a UUID')
    if (ids.has(id)) wrong(`a different line also has the id ${id}`)
    if (!acts.has(act)) wrong('this release does not know the act')
    ids.add(id)
  }
}
