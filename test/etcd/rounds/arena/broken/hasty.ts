/** A broker that acknowledges first and writes a moment later: what it is killed before is lost, and so is a refusal. */
import { EtcdLog } from '../../../../../broker/log/etcd/etcd-log.ts'
import { WriteLayer } from '../../../../../broker/log/write-layer.ts'
import type { Transaction } from '../../../../../broker/log/record-log.ts'

const DELAY_MS = 300
// eslint-disable-next-line @typescript-eslint/unbound-method -- called with the log as it is given
const { transact } = EtcdLog.prototype

EtcdLog.prototype.transact = async function <T>(this: EtcdLog, decide: (transaction: Transaction) => T): Promise<T> {
  const layer = new WriteLayer(this)
  const result = decide(layer)
  if (layer.size === 0) return transact.call(this, decide) as Promise<T>
  setTimeout(() => void transact.call(this, decide).catch(() => undefined), DELAY_MS)
  return Promise.resolve(result)
}
