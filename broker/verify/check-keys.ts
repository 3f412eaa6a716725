/** Of gateways' public keys: each is one member's, and rows and Endpoints say the same. */
import type { ClusterId } from '../../model/ids.ts'
import { recordKeyText } from '../../model/records.ts'
import { statedKeys } from '../members/public-keys.ts'
import type { CheckContext } from './findings.ts'

export function checkKeys({ view, findings }: CheckContext): void {
  for (const { key, value } of view.list('publicKey')) {
    const subject = `publicKey ${key}`
    if (view.get('member', value.cluster) === undefined)
      findings.add('StoreReferenceBroken', subject, `cluster "${value.cluster}" is not known`)
    for (const name of value.endpoints) {
      const body = view.get('record', endpointKey(value.cluster, name))?.body
      if (body?.kind !== 'Endpoint' || !statedKeys(body).includes(key))
        findings.add('StoreReferenceBroken', subject, `Endpoint ${value.cluster}/${name} does not state it`)
    }
    if (value.endpoints.length === 0 && view.get('formerKeys', value.cluster)?.keys.includes(key) !== true)
      findings.add('StoreReferenceBroken', subject, 'no Endpoint has it, and it is none of the former keys')
  }
  for (const { key, value } of view.list('formerKeys')) {
    for (const former of value.keys) {
      const row = view.get('publicKey', former)
      if (row?.cluster !== key || row.endpoints.length > 0)
        findings.add('StoreReferenceBroken', `formerKeys ${key}`, `${former} is in use, or another member's`)
    }
  }
  for (const { key, value } of view.list('record')) {
    if (value.body.kind !== 'Endpoint') continue
    const [cluster = '', , , name = ''] = key.split('/')
    for (const stated of statedKeys(value.body)) {
      const row = view.get('publicKey', stated)
      if (row?.cluster !== cluster || !row.endpoints.includes(name))
        findings.add('StoreReferenceBroken', `record ${key}`, `public key ${stated} is not noted as its own`)
    }
  }
}

function endpointKey(cluster: string, name: string): string {
  return recordKeyText({ cluster: cluster as ClusterId, kind: 'Endpoint', namespace: '', name })
}
