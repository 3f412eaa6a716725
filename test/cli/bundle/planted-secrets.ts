/** Secrets in the forms of Sealane and Kubernetes, and texts that contain them. */
import { Buffer } from 'node:buffer'

const filler = (text: string): string => Buffer.from(text.repeat(20)).toString('base64')
const pemBody = (filler('Kd8+some-private-octets').match(/.{1,64}/g) ?? []).slice(0, 3).join('\n')

export const JOIN_TOKEN = `sealane1.${Buffer.from('{"id":"ab","secret":"Zm9v9","broker":["hub:7443"]}').toString('base64url')}`
export const PRIVATE_PEM = `-----BEGIN EC PRIVATE KEY-----\n${pemBody}\n-----END EC PRIVATE KEY-----`
export const WEB_TOKEN = `eyJhbGciOiJSUzI1NiJ9.${Buffer.from('{"sub":"admin"}').toString('base64url')}.c2lnbmF0dXJl`
export const WIREGUARD_KEY = 'yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk='
export const PASSWORD = 'c0rrect-Horse9!'

/** The texts that a bundle must not contain: each secret, and its parts. */
export const SECRETS: readonly string[] = [
  JOIN_TOKEN,
  JOIN_TOKEN.slice('sealane1.'.length),
  ...pemBody.split('\n'),
  WEB_TOKEN,
  WEB_TOKEN.split('.')[1] ?? '',
  WIREGUARD_KEY,
  PASSWORD,
]

const b64 = (text: string): string => Buffer.from(text).toString('base64')

/** Lines of text as in logs, errors, comments, annotations and command lines. */
export const CARRIERS: readonly string[] = [
  `joining with ${JOIN_TOKEN}`,
  `key ${PRIVATE_PEM} read`,
  `{"msg":"key","pem":${JSON.stringify(PRIVATE_PEM)}}`,
  `Authorization: Bearer ${WEB_TOKEN}`,
  `{"headers":{"authorization":"Bearer ${WEB_TOKEN}"}}`,
  `Authorization: Basic ${b64(`root:${PASSWORD}`)}`,
  `private key is ${WIREGUARD_KEY}`,
  `wg set sealane0 peer x preshared-key ${WIREGUARD_KEY}`,
  `etcd: https://root:${PASSWORD}@10.0.0.1:2379 refused`,
  `sealane broker serve --etcd-user root --etcd-password ${PASSWORD}`,
  `sealane broker serve --etcd-password=${PASSWORD}`,
  `{"etcdPassword":"${PASSWORD}"}`,
  `password: ${PASSWORD}`,
  `{\\"password\\":\\"${PASSWORD}\\"}`,
  `client-key-data: ${b64(PRIVATE_PEM)}`,
  `users: [{ name: a, user: { token: ${WEB_TOKEN} } }]`,
  b64(JOIN_TOKEN),
  b64(PRIVATE_PEM),
  b64(WIREGUARD_KEY),
  b64(`password=${PASSWORD}`),
  b64(b64(`password=${PASSWORD}`)),
  b64(PASSWORD),
  b64(`x${PASSWORD}`),
  b64(`xy${PASSWORD}`),
  encodeURIComponent(PASSWORD),
  PASSWORD,
]
