// For support.test.ts: sends its arguments back and waits to be killed.
for (const text of process.argv.slice(2)) console.log(JSON.stringify({ text: `${text}${process.env.ECHO_SUFFIX}` }));
console.log('not json');
setInterval(() => {}, 1_000);
