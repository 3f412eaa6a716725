/**
 * Writes records as fast as it can, and prints each acknowledged write, until a test kills it. Its argument is the
 * file.
 */
import { writeSync } from 'node:fs'
import { openSqliteLog } from '../../../broker/store/sqlite/sqlite-log.ts'

const log = openSqliteLog({ file: process.argv[2] ?? '', keepRemoved: 50 })

async function write(lane: number): Promise<never> {
  for (let i = 0; ; i += 1) {
    const key = `c${lane}/ClusterSetIP/n/${i % 40}`
    const value = `${process.pid}-${lane}-${i}`
    await log.transact((tx) => {
      if (i % 7 === 6) tx.remove('record', key)
      else tx.put('record', key, { createdAtMs: i, body: { kind: 'ClusterSetIP', ips: [value] } })
      // This is the second half of a transaction, and must never be stored without the first half.
      tx.put('address', key, { service: i % 7 === 6 ? 'gone' : value })
    })
    writeSync(1, `${key} ${i % 7 === 6 ? 'gone' : value}\n`)
  }
}

await Promise.all([0, 1, 2, 3].map((lane) => write(lane)))
