/** A broker that lets clusters in first and writes it down a moment later, or not, where it would be refused by then. */
import { EtcdLog } from '../../../../../broker/log/etcd/etcd-log.ts'
import { WriteLayer } from '../../../../../broker/log/write-layer.ts'
import type { Transaction } from '../../../../../broker/log/record-log.ts'

const DELAY_MS = 300
// eslint-disable-next-line @typescript-eslint/unbound-method -- called with the log as it is given
const { transact } = EtcdLog.prototype

EtcdLog.prototype.transact = async function <T>(this: EtcdLog, decide: (transaction: Transaction) => T): Promise<T> {
  const layer = new WriteLayer(this)
  const result = decide(layer)
  const isJoin = [...layer.writes].some(({ scope }) => scope === 'token')
  if (!isJoin) return transact.call(this, decide) as Promise<T>
  setTimeout(() => void transact.call(this, decide).catch(() => undefined), DELAY_MS)
  return Promise.resolve(result)
}
