use std::{
    io::{self, BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

/// A blocking connection to a Redis server, independent of the code under test, to prepare and inspect servers.
#[derive(Debug)]
pub struct Resp(BufReader<TcpStream>);

/// An answer of Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status or a string.
    Text(String),
    /// A number.
    Int(i64),
    /// Nothing.
    Nil,
    /// An array.
    List(Vec<Reply>),
    /// An error.
    Error(String),
}

impl Resp {
    /// Connects to a port of this machine.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not accept the connection.
    pub fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection breaks or the answer is malformed.
    pub fn call(&mut self, command: &[&str]) -> io::Result<Reply> {
        let mut out = format!("*{}\r\n", command.len());
        for part in command {
            out.push_str(&format!("${}\r\n{part}\r\n", part.len()));
        }
        self.0.get_mut().write_all(out.as_bytes())?;
        self.read()
    }

    fn read(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let Some((kind, rest)) = line.split_at_checked(1) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let number = || rest.parse::<i64>().map_err(io::Error::other);
        Ok(match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(number()?),
            "$" => match usize::try_from(number()?) {
                Ok(len) => {
                    let mut bytes = vec![0; len + 2];
                    io::Read::read_exact(&mut self.0, &mut bytes)?;
                    bytes.truncate(len);
                    Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
                }
                Err(_) => Reply::Nil,
            },
            "*" => match usize::try_from(number()?) {
                Ok(len) => Reply::List((0..len).map(|_| self.read()).collect::<io::Result<_>>()?),
                Err(_) => Reply::Nil,
            },
            _ => return Err(io::Error::other(line)),
        })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

impl Reply {
    /// The text, also of a number; empty for all other answers.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) | Self::Error(text) => text.clone(),
            Self::Int(number) => number.to_string(),
            Self::Nil | Self::List(_) => String::new(),
        }
    }

    /// The texts of an array.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        match self {
            Self::List(items) => items.iter().map(Self::text).collect(),
            _ => Vec::new(),
        }
    }
}
