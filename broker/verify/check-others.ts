/** Of the settings, tokens and lines that wait for the audit log. */
import { isDnsLabel } from '../../model/ids.ts'
import { parsePrefix } from '../../model/addresses/ip.ts'
import { parseBrokerAddress } from '../../protocol/broker-address.ts'
import { messageOf } from '../../runtime/thrown.ts'
import { AUDIT_ACTS } from '../audit/audit-event.ts'
import { MAX_WAITING } from '../audit/audit-outbox.ts'
import { SETTINGS_KEY } from '../state/state.ts'
import type { CheckContext } from './findings.ts'

export function checkSettings({ view, findings }: CheckContext): void {
  const settings = view.get('settings', SETTINGS_KEY)
  if (settings === undefined) {
    if (view.count('member') + view.count('token') > 0)
      findings.add('StoreRowInvalid', 'settings', 'there are none, and there are members or tokens')
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
    // The hash itself is not said: who has it can look for the secret.
    if (!/^[0-9a-f]{64}$/.test(value.hash))
      findings.add('StoreRowInvalid', `token ${key}`, 'hash: expected 64 hexadecimal digits')
    if (hashes.has(value.hash)) findings.add('StoreRowInvalid', `token ${key}`, 'another token has the same secret')
    hashes.add(value.hash)
  }
}

/** Lines that wait for the audit log: each has a place of its own, and comes once. */
export function checkOutbox({ view, findings }: CheckContext): void {
  const ids = new Set<string>()
  const acts = new Set<string>(AUDIT_ACTS)
  for (const { key, value } of view.list('audit')) {
    const wrong = (text: string): void => findings.add('StoreOutboxInvalid', `audit ${key}`, text)
    const { id, act } = value.event
    if (!/^\d{4,}$/.test(key) || Number(key) >= MAX_WAITING) wrong(`expected a place below ${MAX_WAITING}`)
    if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id)) wrong('its id is no UUID')
    if (ids.has(id)) wrong(`another line has the id ${id}`)
    if (!acts.has(act)) wrong('its act is none of this release')
    ids.add(id)
  }
}
