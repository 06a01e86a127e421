fn main() {
    let all: Result<Vec<_>, _> = std::env::args().skip(1).map(|p| verbgate_abi_extract::extract(std::path::Path::new(&p))).collect();
    match all.and_then(verbgate_abi_extract::merge).and_then(|f| verbgate_abi_extract::to_json(&f)) {
        Ok(t) => print!("{t}"),
        Err(e) => { eprintln!("{e}"); std::process::exit(1) }
    }
}
