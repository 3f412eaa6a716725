/** What a test's etcd lets in, as files: the way that a broker and its commands are told. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import type { EtcdCluster } from './etcd-cluster.ts'

export interface EtcdLogin {
  readonly caFile: string
  readonly certificateFile: string
  readonly keyFile: string
}

/** Paths in a folder that goes with the test. */
export function etcdLogin(t: Test, { ca, client }: Pick<EtcdCluster, 'ca' | 'client'>): EtcdLogin {
  const folder = temporaryFolder(t)
  const file = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text, { mode: 0o600 })
    return join(folder, name)
  }
  return {
    caFile: file('ca', ca),
    certificateFile: file('certificate', client.certificate),
    keyFile: file('key', client.key),
  }
}
