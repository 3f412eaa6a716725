/**
 * What a broker shows an etcd, in files that somebody else may renew while it runs: a certificate of 90 days ends long
 * before a broker does. They are read anew for each connection; what cannot be used leaves what was read before.
 */
import { X509Certificate, createPrivateKey } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { messageOf } from '../../../../runtime/thrown.ts'
import type { EtcdLogin } from './etcd-client.ts'
import type { EtcdTls } from './etcd-connection.ts'

export interface CredentialPaths {
  readonly ca?: string | undefined
  /** Both, or none. */
  readonly certificate?: string | undefined
  readonly key?: string | undefined
  readonly password?: string | undefined
}

/** One that cannot be read, or used. */
export class CredentialFileError extends Error {
  readonly file: string
  constructor(file: string, message: string, cause: unknown) {
    super(message, { cause })
    this.name = 'CredentialFileError'
    this.file = file
  }
}

interface Given {
  readonly tls: EtcdTls
  readonly password: string | undefined
}

export class CredentialFiles {
  readonly #paths: CredentialPaths
  readonly #user: string | undefined
  #last: Given

  /** Throws CredentialFileError. */
  constructor(paths: CredentialPaths, user: string | undefined) {
    this.#paths = paths
    this.#user = user
    this.#last = read(paths)
  }

  /** As the files are now. */
  get tls(): EtcdTls {
    return this.#now().tls
  }

  get login(): EtcdLogin | undefined {
    const user = this.#user
    const password = user === undefined ? undefined : this.#now().password
    return user === undefined || password === undefined ? undefined : { user, password }
  }

  /** Half of a new pair may be there: the other half comes with the next connection. */
  #now(): Given {
    try {
      this.#last = read(this.#paths)
    } catch {
      // As above.
    }
    return this.#last
  }
}

function read(paths: CredentialPaths): Given {
  const [ca, certificate, key] = [paths.ca, paths.certificate, paths.key].map(textOf)
  if (certificate !== undefined && key !== undefined) checkPair(paths.certificate ?? '', certificate, key)
  const tls = {
    ...(ca === undefined ? {} : { ca }),
    ...(certificate === undefined ? {} : { certificate }),
    ...(key === undefined ? {} : { key }),
  }
  return { tls, password: textOf(paths.password)?.replace(/\r?\n$/, '') }
}

function textOf(file: string | undefined): string | undefined {
  if (file === undefined) return undefined
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new CredentialFileError(file, `${file} cannot be read (${messageOf(error)})`, error)
  }
}

function checkPair(file: string, certificate: string, key: string): void {
  let fits = false
  try {
    fits = new X509Certificate(certificate).checkPrivateKey(createPrivateKey(key))
  } catch (error) {
    throw new CredentialFileError(file, `${file} and its key cannot be used (${messageOf(error)})`, error)
  }
  if (!fits) throw new CredentialFileError(file, `${file}: the key that is given with it is another one`, undefined)
}
