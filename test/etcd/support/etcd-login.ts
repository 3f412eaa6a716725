/** The credentials for the etcd of a test, written to files as a broker and its commands read them. */
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

/** Writes the credentials to a folder that is removed with the test, and returns the paths. */
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
